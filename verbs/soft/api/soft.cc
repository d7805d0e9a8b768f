#include "verbs/soft/api/soft.h"

#include <endian.h>
#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>
#include <system_error>

#include "base/system/no_cancellation.h"
#include "fairlead/log.h"
#include "verbs/soft/api/api.h"
#include "verbs/soft/api/control_path.h"
#include "verbs/soft/api/objects.h"
#include "verbs/soft/api/per_process.h"
#include "verbs/soft/observe/refuse.h"
#include "verbs/soft/port/port_spec.h"
#include "verbs/soft/port/udp/udp_socket.h"

namespace fairlead::soft {
namespace {

// An address that only the program named is not shared: who else has it needs no waiting for.
Status nobody_has(const DeviceConfig& config) {
  const auto spec = parse_port_spec(config.packet_io);
  if (spec && spec->owns_wire()) return {};
  const auto address = parse_address(config.address);
  return address ? bind_roce_port(*address, PortUse::kReceive).status() : address.status();
}

struct Entry : ibv_device {
  /// `primary`: the entry of the port's first lane; null for that itself.
  Entry(DeviceConfig wanted, Entry* primary)
      : ibv_device{},
        config(std::move(wanted)),
        guid(primary != nullptr ? primary->guid + config.lane : random_guid()),
        primary_(primary) {
    node_type = IBV_NODE_CA;
    transport_type = IBV_TRANSPORT_IB;
    device_name(config).copy(name, sizeof(name) - 1);
    std::strncpy(dev_name, "softroce", sizeof(dev_name) - 1);
  }

  /// At this address, or at any if it is empty: opened now, or earlier by this process and not closed.
  Result<std::shared_ptr<DeviceCore>> core(const std::string& address) {
    auto lanes = primary_ != nullptr ? primary_->lanes(address) : this->lanes(address);
    if (!lanes) return lanes.error();
    return std::shared_ptr<DeviceCore>(*lanes, (**lanes)[config.lane].get());
  }

  const DeviceConfig config;
  const std::uint64_t guid;

 private:
  struct Opened {
    std::mutex mutex;  // held while a device is opened, for seconds where other processes are waited for
    std::vector<std::weak_ptr<DeviceLanes>> lanes;
  };

  Result<std::shared_ptr<DeviceLanes>> lanes(const std::string& address) {
    Opened& opened = opened_.get();
    const std::lock_guard lock(opened.mutex);
    std::erase_if(opened.lanes, [](const auto& lanes) { return lanes.expired(); });
    for (const auto& candidate : opened.lanes) {
      auto lanes = candidate.lock();
      if (lanes != nullptr && (address.empty() || to_string(Gid::from_verbs(lanes->front()->gid(1).gid)) == address)) {
        return lanes;
      }
    }
    DeviceConfig wanted = config;
    wanted.address = address;
    if (config.address.empty() && !address.empty()) {
      if (Status status = nobody_has(wanted); !status.ok()) return status;
    }
    auto made = DeviceCore::open(wanted, guid);
    if (made) opened.lanes.push_back(*made);
    return made;
  }

  Entry* const primary_;
  PerProcess<Opened> opened_;  // a forked child has its parent's sockets, but must have its own
};

bool same(const DeviceConfig& a, const DeviceConfig& b) {
  return a.name == b.name && a.profile == b.profile && a.packet_io == b.packet_io && a.address == b.address &&
         a.lane == b.lane;
}

// fork() waits for its lock, which is never held for long: the child has the same devices.
class Registry {
 public:
  Registry() {
    static_cast<void>(ForkMark());  // its own handlers now, and not under mutex_, which before_fork takes
    ::pthread_atfork(&before_fork, &after_fork, &after_fork);
  }
  Entry& find_or_add(const DeviceConfig& config) {
    const std::lock_guard lock(mutex_);
    if (config.lane == 0) return find_or_add(config, nullptr);
    DeviceConfig primary = config;
    primary.lane = 0;
    return find_or_add(config, &find_or_add(primary, nullptr));
  }
  [[nodiscard]] bool holds(const ibv_device& device) {
    const std::lock_guard lock(mutex_);
    return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) { return &entry == &device; });
  }

 private:
  Entry& find_or_add(const DeviceConfig& config, Entry* primary) {
    for (Entry& entry : entries_) {
      if (same(entry.config, config)) return entry;
    }
    return entries_.emplace_back(config, primary);
  }
  static void before_fork();
  static void after_fork();

  std::mutex mutex_;
  std::deque<Entry> entries_;  // addresses stay
};

Registry& registry() {
  static Registry& instance = *new Registry;  // outlives every static that may still hold a device
  return instance;
}

void Registry::before_fork() { registry().mutex_.lock(); }
void Registry::after_fork() { registry().mutex_.unlock(); }

std::string from_environment(const char* name, std::string otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? std::string(value) : std::move(otherwise);
}

// The device that the environment describes, by its lanes; a mistake in it is logged, and there is no device then.
std::vector<ibv_device*> environment_devices() {
  DeviceConfig config;
  config.name = from_environment("FAIRLEAD_SOFT_DEVICE", config.name);
  config.packet_io = from_environment("FAIRLEAD_PACKET_IO", config.packet_io);
  config.address = from_environment("FAIRLEAD_SOFT_ADDRESS", "");
  const auto profile = parse_profile(from_environment("FAIRLEAD_SOFT_PROFILE", "full"));
  if (!profile) {
    log(LogLevel::kError, profile.error().message());
    return {};
  }
  config.profile = *profile;
  std::vector<ibv_device*> devices;
  for (; config.lane < lanes(config); ++config.lane) {
    const auto device = find_or_add_device(config);
    if (!device) {
      log(LogLevel::kError, device.error().message());
      return {};
    }
    devices.push_back(*device);
  }
  return devices;
}

int to_errno(Code code) noexcept {
  switch (code) {
    case Code::kInvalidArgument:
      return EINVAL;
    case Code::kAlreadyExists:
      return EADDRINUSE;
    case Code::kNotFound:
      return EADDRNOTAVAIL;
    case Code::kResourceExhausted:
      return EMFILE;
    default:
      return EIO;
  }
}

Result<ibv_context*> open_at(Entry& entry, const std::string& address) {
  const NoCancellation whole;
  try {
    auto core = entry.core(address);
    if (!core) return core.error();
    return &(new Device(entry, entry.config.profile, std::move(*core)))->context;
  } catch (const std::bad_alloc&) {
    return {Code::kResourceExhausted, "out of memory"};
  } catch (const std::system_error& error) {
    return {Code::kResourceExhausted,
            fmt::format("{}; raise the limits on open files and threads (ulimit -n, -u)", error.what())};
  }
}

// As verbs has it: errno, and the reason in the log.
ibv_context* open(Entry& entry, const std::string& address, LogLevel if_refused) {
  auto opened = open_at(entry, address);
  if (opened) return *opened;
  log(if_refused, opened.error().message());
  errno = to_errno(opened.error().code());
  return nullptr;
}

}  // namespace

namespace api {

bool is_soft(const ibv_device* device) noexcept { return device != nullptr && registry().holds(*device); }

bool is_soft(const ibv_context* context) noexcept { return context != nullptr && context->ops.post_send == &post_send; }

ibv_device** get_device_list(int* count) {
  const std::vector<ibv_device*> devices = environment_devices();
  auto** list = static_cast<ibv_device**>(std::calloc(devices.size() + 1, sizeof(ibv_device*)));
  if (list == nullptr) return nullptr;
  std::copy(devices.begin(), devices.end(), list);
  if (count != nullptr) *count = static_cast<int>(devices.size());
  return list;
}

void free_device_list(ibv_device** list) { std::free(static_cast<void*>(list)); }

const char* get_device_name(ibv_device* device) { return device->name; }

__be64 get_device_guid(ibv_device* device) { return htobe64(static_cast<Entry*>(device)->guid); }

ibv_context* open_device(ibv_device* device) {
  auto& entry = *static_cast<Entry*>(device);
  return open(entry, entry.config.address, LogLevel::kError);
}

ibv_context* open_device_at(const std::string& address) {
  const std::vector<ibv_device*> devices = environment_devices();
  if (devices.empty()) {
    errno = ENODEV;
    return nullptr;
  }
  auto& entry = *static_cast<Entry*>(devices.front());
  if (!entry.config.address.empty() && entry.config.address != address) {
    return refuse(EADDRNOTAVAIL, fmt::format("{} is not the device's address, which FAIRLEAD_SOFT_ADDRESS sets to {}",
                                             address, entry.config.address));
  }
  return open(entry, address, LogLevel::kInfo);  // programs try what addresses they can have
}

}  // namespace api

const verbs::VerbsApi& verbs_api() {
  static const verbs::VerbsApi api = [] {
    verbs::VerbsApi table{};
    table.source = "softroce";
    table.get_device_list = &api::get_device_list;
    table.free_device_list = &api::free_device_list;
    table.get_device_name = &api::get_device_name;
    table.open_device = &api::open_device;
    table.take_refusal = &take_refusal;
    table.activity = [](ibv_context* context) {
      const auto activity = impl(context).domain().activity();
      return verbs::DeviceActivity{activity.moves, activity.placed};
    };
    add_control_path(table);
    return table;
  }();
  return api;
}

Result<ibv_context*> open_device(ibv_device* device) {
  auto& entry = *static_cast<Entry*>(device);
  return open_at(entry, entry.config.address);
}

Result<ibv_device*> find_or_add_device(const DeviceConfig& config) {
  if (Status status = validate(config); !status.ok()) return status;
  return static_cast<ibv_device*>(&registry().find_or_add(config));
}

bool crosses_memory(std::string_view packet_io) {
  const auto spec = parse_port_spec(packet_io);
  return spec && !spec->owns_wire() && spec->local_memory;
}

std::vector<DeviceCounter> read_counters(ibv_context* context) {
  std::vector<DeviceCounter> values;
  for (const CounterValue& counter : read(impl(context).domain().counters)) {
    values.push_back({counter.name, counter.value});
  }
  return values;
}

}  // namespace fairlead::soft
