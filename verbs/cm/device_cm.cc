#include "verbs/cm/device_cm.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <ctime>

#include "base/system/no_cancellation.h"
#include "base/system/random64.h"
#include "verbs/cm/address.h"
#include "verbs/soft/api/api.h"
#include "verbs/soft/api/objects.h"
#include "verbs/soft/observe/port_errno.h"

namespace fairlead::cm {
namespace {

using soft::Device;
using soft::DomainLock;

constexpr std::uint32_t kOwnGid = 1;

std::uint64_t guid_of(Device& device) noexcept {
  ibv_device_attr attr{};
  soft::api::query_device(&device.context, &attr);
  return __builtin_bswap64(attr.node_guid);
}

struct Serving {
  std::mutex mutex;
  ::pid_t owner = ::getpid();
  std::vector<DeviceCm*> devices;  // never shrinks, never deleted; one for each address that the process has opened

  // A forked child has its parent's sockets, but must have its own.
  void leave_to_parent() noexcept {
    if (owner != ::getpid()) devices.clear();
    owner = ::getpid();
  }
  DeviceCm* take(ibv_context* opened) {
    if (opened == nullptr) return nullptr;
    devices.push_back(new DeviceCm(soft::impl(opened)));
    return devices.back();
  }
  DeviceCm* primary() {
    if (!devices.empty()) return devices.front();
    ibv_device** list = soft::api::get_device_list(nullptr);
    ibv_context* opened = list != nullptr && list[0] != nullptr ? soft::api::open_device(list[0]) : nullptr;
    soft::api::free_device_list(list);
    return take(opened);
  }
  std::optional<Place> find(const Gid& local) {
    for (DeviceCm* at : devices) {
      if (const auto index = at->index_of(local)) return Place{at, *index};
    }
    return std::nullopt;
  }
};

std::atomic<Serving*> made_serving{nullptr};  // for those who must not make it

Serving& serving() {
  static Serving& instance = []() -> Serving& {
    auto* made = new Serving;
    made_serving.store(made);
    return *made;
  }();
  return instance;
}

std::uint32_t lower_half(std::uint64_t service) noexcept { return static_cast<std::uint32_t>(service); }

int refused(const Status& status, LogLevel level) {
  log(level, status.message());
  return soft::port_errno(status, EADDRNOTAVAIL);
}

std::optional<Place> nowhere(int error) {
  errno = error;
  return std::nullopt;
}

}  // namespace

DeviceCm::DeviceCm(Device& served) : device(served), manager(*this, guid_of(served), random64()) {
  device.watch();
  const DomainLock lock(domain());
  domain().set_management(this);
}

void DeviceCm::on_mad(const Gid& local, const Gid& remote, std::span<const std::byte, kMadBytes> mad) noexcept {
  manager.on_mad(local, remote, mad);
}

// The domain calls this when any timer of its own ends, so most calls find nothing to do.
void DeviceCm::run_timers() noexcept {
  if (deadline_ == 0) return;
  if (now() < deadline_) return domain().set_deadline(deadline_);
  deadline_ = 0;
  manager.run_timers();
}

void DeviceCm::send(const Gid& from, const Gid& to, const MadBytes& mad) noexcept {
  soft::management::send(device.domain(), from, to, mad);
}

Nanos DeviceCm::now() const noexcept { return device.domain().now(); }

void DeviceCm::set_deadline(Nanos at) noexcept {
  if (deadline_ == 0 || at < deadline_) deadline_ = at;
  domain().set_deadline(at);
}

std::optional<std::uint8_t> DeviceCm::place() const noexcept {
  for (std::uint32_t place = 0; place <= 0xff; ++place) {
    if (device.domain().in_partition(place << 16)) return static_cast<std::uint8_t>(place);
  }
  return std::nullopt;
}

Gid DeviceCm::gid(std::uint32_t index) noexcept {
  ibv_gid raw{};
  if (soft::api::query_gid(context(), 1, static_cast<int>(index), &raw) != 0) return {};
  return Gid::from_verbs(raw);
}

std::optional<std::uint32_t> DeviceCm::index_of(const Gid& wanted) noexcept {
  for (std::uint32_t i = kOwnGid; i < soft::kGidTableLength; ++i) {
    if (!wanted.is_null() && gid(i) == wanted) return i;
  }
  return std::nullopt;
}

int DeviceCm::bind_port(std::uint32_t gid_index) {
  const Status status = device.bind_port(gid_index);
  return status.ok() ? 0 : refused(status, LogLevel::kError);
}

int DeviceCm::listen_at(std::uint32_t gid_index, std::uint64_t service, LogLevel if_refused) {
  if (const Status bound = device.bind_port(gid_index); !bound.ok()) return refused(bound, if_refused);
  const auto port = [&] {
    const DomainLock lock(domain());
    return device.port_of_gid(gid_index);
  }();
  if (!port) return refused(port.error(), if_refused);
  // It stays as long as the device, and waits for who joins its address: without the lock.
  const Status status = (*port)->port->take_requests(lower_half(service));
  return status.ok() ? 0 : refused(status, if_refused);
}

void DeviceCm::leave(const Gid& gid, std::uint64_t service) {
  soft::PortSlot* const slot = [&] {
    const DomainLock lock(domain());
    return domain().find_port(gid);
  }();
  if (slot != nullptr) slot->port->leave_requests(lower_half(service));
}

ibv_mtu DeviceCm::path_mtu(std::uint32_t gid_index) {
  const DomainLock lock(domain());
  const auto port = device.port_of_gid(gid_index);
  return soft::largest_ibv_mtu(port ? (*port)->port->max_mtu() : 0);
}

ibv_pd* DeviceCm::default_pd() {
  std::call_once(pd_once_, [this] { pd_ = soft::api::alloc_pd(context()); });
  if (pd_ == nullptr) errno = ENOMEM;
  return pd_;
}

std::optional<Place> place_at(const Gid& local) {
  const std::lock_guard lock(serving().mutex);
  serving().leave_to_parent();
  if (const auto known = serving().find(local)) return known;
  if (is_loopback(local)) {
    DeviceCm* own = serving().take(soft::api::open_device_at(soft::to_string(local)));
    // "localhost" of a device that was given another address: that device, as in Linux.
    const bool taken = own == nullptr && errno == EADDRINUSE;
    if (taken || (own == nullptr && errno == EADDRNOTAVAIL)) own = serving().primary();
    return own != nullptr ? std::optional(Place{own, kOwnGid, taken}) : std::nullopt;
  }
  if (serving().primary() == nullptr) return std::nullopt;
  const auto place = serving().find(local);
  return place ? place : nowhere(EADDRNOTAVAIL);
}

std::optional<Place> place_toward(const Gid& remote) {
  DeviceCm* device = primary_device();
  if (device == nullptr) return std::nullopt;
  // From one's own address to an address of this host: the route would give the destination as the source.
  const bool has_family = remote.is_ipv4() == device->gid(kOwnGid).is_ipv4();
  if (is_local(remote) && has_family) return Place{device, kOwnGid};
  // A device with a wire of its own has its own routes, and an address that is none of the host's.
  if (!is_local(device->gid(kOwnGid))) return Place{device, kOwnGid};
  const auto source = source_toward(remote);
  if (!source) return nowhere(ENETUNREACH);
  const std::lock_guard lock(serving().mutex);
  const auto place = serving().find(*source);
  return place ? place : nowhere(has_family ? ENODEV : EAFNOSUPPORT);
}

DeviceCm* primary_device() {
  const std::lock_guard lock(serving().mutex);
  serving().leave_to_parent();
  return serving().primary();
}

std::vector<DeviceCm*> serving_devices() {
  const std::lock_guard lock(serving().mutex);
  return serving().devices;
}

bool serves_here() noexcept {
  const Serving* const made = made_serving.load();
  return made != nullptr && made->owner == ::getpid();
}

// exit() may have interrupted whoever holds a lock, so nothing is waited for long: about 0.1 s, which is enough for a
// holder that lost its core.
void disconnect_everything() noexcept {
  const NoCancellation whole;
  constexpr int kTries = 1000;
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 100'000};
  if (!serves_here()) return;
  Serving& known = *made_serving.load();
  if (!known.mutex.try_lock()) return;
  for (DeviceCm* at : known.devices) {
    for (int i = 0; i < kTries; ++i) {
      if (at->domain().try_lock()) {
        at->manager.disconnect_all();
        at->domain().unlock();
        break;
      }
      ::nanosleep(&kPause, nullptr);
    }
  }
  known.mutex.unlock();
}

}  // namespace fairlead::cm
