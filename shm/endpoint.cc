#include "shm/endpoint.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "base/system/no_watch.h"

namespace fairlead::shm {
namespace {

constexpr std::uint32_t kPollsPerLook = 256;  // how often sockets are looked at while nobody sleeps
constexpr int kMaxEvents = 64;

}  // namespace

Result<std::unique_ptr<ShmEndpoint>> ShmEndpoint::open(ShmDevice& device) {
  auto listener = Listener::open(device.meeting(), device.clock());
  if (!listener) return listener.error();
  std::unique_ptr<ShmEndpoint> endpoint(new ShmEndpoint(device, std::move(*listener)));
  endpoint->shared_.epoll = PrivateFd(UniqueFd(::epoll_create1(EPOLL_CLOEXEC)));
  epoll_event event{};
  event.events = EPOLLIN;
  if (!endpoint->shared_.epoll ||
      ::epoll_ctl(endpoint->shared_.epoll.get(), EPOLL_CTL_ADD, endpoint->listener_.wait_fd(), &event) != 0) {
    return no_watch("sockets of shm", errno);
  }
  return endpoint;
}

ShmEndpoint::ShmEndpoint(ShmDevice& device, Listener listener)
    : grants_(device.grants()),
      shared_{.config = device.config(),
              .place = device.meeting(),
              .clock = device.clock(),
              .grants = grants_,
              .reads = device.reads(),
              .arenas = device.arenas(),
              .traffic = traffic_,
              .socket = listener.number()},
      listener_(std::move(listener)) {}

ShmEndpoint::~ShmEndpoint() { assert(shared_.paths.empty() && "a path outlives its endpoint"); }

Result<std::unique_ptr<datapath::Path>> ShmEndpoint::open_path(const datapath::PathConfig& config) {
  listener_.keep_name(shared_.place);
  return std::unique_ptr<datapath::Path>(std::make_unique<ShmPath>(shared_, config));
}

bool ShmEndpoint::poll() noexcept {
  shared_.polling = true;
  bool happened = look_around();
  // By index: paths may be opened, and others destroyed, from inside the calls.
  for (std::size_t i = 0; i < shared_.paths.size(); ++i) {
    ShmPath* const path = shared_.paths[i];
    if (path != nullptr && !path->is_still()) happened |= path->advance();
  }
  std::size_t ready = 0, gone = 0;
  for (const ShmPath* path : shared_.paths) {
    gone += path == nullptr ? 1 : 0;
    ready += path != nullptr && path->ready() ? 1 : 0;
  }
  ready_paths_ = ready;
  shared_.polling = false;
  if (gone > 0) std::erase(shared_.paths, nullptr);
  return happened;
}

// Learns which sockets have something, and lets the listener work.
bool ShmEndpoint::look_around() noexcept {
  const bool all_ready = ready_paths_ > 0 && ready_paths_ == shared_.paths.size();
  if (all_ready && !armed_ && ++polls_ % kPollsPerLook != 0) return false;
  armed_ = false;  // and who else sleeps is woken all the same, until disarm()
  if (std::exchange(shared_.urgent_moved, false)) shared_.urgent_at = shared_.clock.now();
  std::array<epoll_event, kMaxEvents> ready;
  const int count = ::epoll_wait(shared_.epoll.get(), ready.data(), kMaxEvents, 0);
  bool listener = listener_.deadline().has_value();
  for (int i = 0; i < count; ++i) {
    auto* path = static_cast<ShmPath*>(ready[static_cast<std::size_t>(i)].data.ptr);
    if (path == nullptr) {
      listener = true;
    } else {
      path->mark_readable();
    }
  }
  if (!listener) return false;
  return listener_.advance([this](Guest& guest) {
    return std::any_of(shared_.paths.begin(), shared_.paths.end(),
                       [&](ShmPath* path) { return path != nullptr && path->adopt(guest); });
  });
}

bool ShmEndpoint::arm() noexcept {
  armed_ = true;
  bool quiet = true;
  for (ShmPath* path : shared_.paths) quiet &= path->arm();
  return quiet;
}

void ShmEndpoint::disarm() noexcept {
  for (ShmPath* path : shared_.paths) path->disarm();
}

void ShmEndpoint::settle() noexcept {
  for (ShmPath* path : shared_.paths) path->settle();
}

int ShmEndpoint::wait_timeout_us() const noexcept {
  std::optional<Nanos> first = listener_.deadline();
  for (const ShmPath* path : shared_.paths) {
    const auto deadline = path->deadline();
    if (deadline && (!first || *deadline < *first)) first = deadline;
  }
  return microseconds_until(first, shared_.clock.now());
}

}  // namespace fairlead::shm
