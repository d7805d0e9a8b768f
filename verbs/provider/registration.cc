#include "verbs/provider/registration.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>

#include "base/size_text.h"
#include "base/system/cgroup.h"
#include "base/system/process_limits.h"
#include "fairlead/log.h"
#include "verbs/provider/objects.h"

namespace fairlead::verbs {
namespace {

std::string too_large(const RegionLimits& device, std::uint64_t bytes) {
  if (device.largest == 0 || bytes <= device.largest) return {};
  return fmt::format("the device's max_mr_size is {}: register pieces of at most so much", size_text(device.largest));
}

std::string too_much_locked(const LockedMemory& locked, std::uint64_t bytes) {
  const std::uint64_t free = locked.limit ? *locked.limit - std::min(*locked.limit, locked.pinned) : 0;
  if (!locked.limit || locked.exempt || bytes <= free) return {};
  return fmt::format(
      "RLIMIT_MEMLOCK is {}, of which devices have pinned {} for this process: raise it with `ulimit -l` or systemd "
      "`LimitMEMLOCK=`",
      size_text(*locked.limit), size_text(locked.pinned));
}

// Spares whoever has no such limit the reading of files.
bool locked_memory_is_limited() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

}  // namespace

RegionLimits region_limits(const ibv_device_attr& attributes) noexcept {
  return {.largest = attributes.max_mr_size, .most = static_cast<std::uint64_t>(std::max(attributes.max_mr, 0))};
}

std::string registration_bar(const RegionLimits& limits, std::uint64_t bytes, const SystemFiles& files) {
  if (std::string large = too_large(limits, bytes); !large.empty()) return large;
  if (limits.most != 0 && limits.held >= limits.most) {
    return fmt::format("the device takes max_mr = {} regions, and this process holds {}: register fewer, larger ranges",
                       limits.most, limits.held);
  }
  return limits.pins ? too_much_locked(read_locked_memory(files), bytes) : std::string();
}

std::string registration_limit(const RegionLimits& device, std::uint64_t bytes, int error, const SystemFiles& files) {
  if (std::string large = too_large(device, bytes); !large.empty()) return large;
  if (error != ENOMEM && error != EAGAIN) return {};
  const LockedMemory locked = read_locked_memory(files);
  if (std::string much = too_much_locked(locked, bytes); !much.empty()) return much;
  const std::optional<GroupMemory> group = tightest_group_memory(files);
  if (group && bytes > group->limit) {
    return fmt::format(
        "the control group's limit, {}, is {}, which pinned memory cannot leave: raise it, or register less",
        group->file, size_text(group->limit));
  }
  const std::string lock = locked.exempt || !locked.limit
                               ? "RLIMIT_MEMLOCK does not bind this process"
                               : fmt::format("RLIMIT_MEMLOCK is {}, which is enough", size_text(*locked.limit));
  if (device.most == 0) return fmt::format("{}; the device or its driver is out of resources", lock);
  return fmt::format(
      "{}; the device takes max_mr = {} regions of all processes together: register fewer, larger ranges, or free what "
      "other processes hold",
      lock, device.most);
}

namespace {

Status registration_error(const VerbsApi& api, std::string_view device, std::size_t bytes, int error,
                          const RegionLimits& limits) {
  const std::string what =
      fmt::format("cannot register {} with {}: {}", size_text(bytes), device, std::strerror(error));
  if (error == EFAULT || error == EACCES || error == EPERM) {
    return {Code::kPermissionDenied, fmt::format("{}; the memory is not mapped, or is mapped read-only", what)};
  }
  // A device in user space pins nothing, and has words of its own.
  const std::string own = api.take_refusal != nullptr ? api.take_refusal() : std::string();
  const std::string limit = !own.empty() ? own : registration_limit(limits, bytes, error, SystemFiles());
  return {Code::kResourceExhausted, limit.empty() ? what : fmt::format("{}; {}", what, limit)};
}

}  // namespace

Result<ibv_mr*> register_memory(const VerbsApi& api, ibv_pd* pd, std::string_view device, std::span<std::byte> bytes,
                                int access_flags, const RegionLimits& limits) {
  if (bytes.empty()) {
    return Status(Code::kInvalidArgument, fmt::format("cannot register 0 bytes with {}: give at least 1", device));
  }
  RegionLimits binding = limits;
  binding.pins = limits.pins && locked_memory_is_limited();
  if (const std::string bar = registration_bar(binding, bytes.size(), SystemFiles()); !bar.empty()) {
    return Status(Code::kResourceExhausted,
                  fmt::format("cannot register {} with {}: {}", size_text(bytes.size()), device, bar));
  }
  if (api.take_refusal != nullptr) static_cast<void>(api.take_refusal());  // of an earlier call
  errno = 0;
  ibv_mr* region = api.reg_mr(pd, bytes.data(), bytes.size(), access_flags);
  if (region == nullptr) return registration_error(api, device, bytes.size(), errno == 0 ? EINVAL : errno, limits);
  return region;
}

Result<ibv_mr*> register_user_memory(const VerbsApi& api, ibv_pd* pd, std::string_view device,
                                     std::span<std::byte> bytes, Access access, const RegionLimits& limits) {
  int flags = allows(access, Access::kLocalReadOnly) ? 0 : IBV_ACCESS_LOCAL_WRITE;
  if (allows(access, Access::kRemoteRead)) flags |= IBV_ACCESS_REMOTE_READ;
  if (allows(access, Access::kRemoteWrite)) flags |= IBV_ACCESS_REMOTE_WRITE;
  auto region = register_memory(api, pd, device, bytes, flags, limits);
  // IBTA 10.6.7.1: remote write needs local write, remote read does not.
  const bool write_needed = allows(access, Access::kRemoteWrite);
  if (region || write_needed || region.error().code() != Code::kPermissionDenied) return region;
  log(LogLevel::kDebug, fmt::format("{}; registering it without local write", region.error().message()));
  return register_memory(api, pd, device, bytes, flags & ~IBV_ACCESS_LOCAL_WRITE, limits);
}

bool has_remote_keys(const VerbsApi& api, ibv_pd* pd) {
  constexpr int kFlags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  alignas(64) std::array<std::byte, 64> memory{};  // that no page ends in: QEMU counts none but whole ones
  const MemoryRegion first(api, api.reg_mr(pd, memory.data(), memory.size(), kFlags));
  const MemoryRegion second(api, api.reg_mr(pd, memory.data(), memory.size(), kFlags));
  return !first || !second || first->rkey != second->rkey;
}

}  // namespace fairlead::verbs
