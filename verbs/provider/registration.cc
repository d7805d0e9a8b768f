#include "verbs/provider/registration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>

#include "base/size_text.h"
#include "base/system/cgroup.h"
#include "base/system/process_limits.h"
#include "fairlead/log.h"

namespace fairlead::verbs {
namespace {

std::optional<ibv_device_attr> attributes_of(const VerbsApi& api, const ibv_pd* pd) {
  if (api.query_device == nullptr || pd == nullptr || pd->context == nullptr) return std::nullopt;
  ibv_device_attr attributes{};
  if (api.query_device(pd->context, &attributes) != 0) return std::nullopt;
  return attributes;
}

}  // namespace

std::string registration_limit(const std::optional<ibv_device_attr>& device, std::uint64_t bytes, int error,
                               const SystemFiles& files) {
  const std::uint64_t largest = device ? device->max_mr_size : 0;  // 0: the device does not say
  if (largest != 0 && bytes > largest) {
    return fmt::format("the device's max_mr_size is {}: register pieces of at most so much", size_text(largest));
  }
  if (error != ENOMEM && error != EAGAIN) return {};
  const LockedMemory locked = read_locked_memory(files);
  const std::uint64_t free = locked.limit ? *locked.limit - std::min(*locked.limit, locked.pinned) : 0;
  if (locked.limit && !locked.exempt && bytes > free) {
    return fmt::format(
        "RLIMIT_MEMLOCK is {}, of which devices have pinned {} for this process: raise it with `ulimit -l` or systemd "
        "`LimitMEMLOCK=`",
        size_text(*locked.limit), size_text(locked.pinned));
  }
  const std::optional<GroupMemory> group = tightest_group_memory(files);
  if (group && bytes > group->limit) {
    return fmt::format(
        "the control group's limit, {}, is {}, which pinned memory cannot leave: raise it, or register less",
        group->file, size_text(group->limit));
  }
  const std::string lock = locked.exempt || !locked.limit
                               ? "RLIMIT_MEMLOCK does not bind this process"
                               : fmt::format("RLIMIT_MEMLOCK is {}, which is enough", size_text(*locked.limit));
  if (!device || device->max_mr <= 0) return fmt::format("{}; the device or its driver is out of resources", lock);
  return fmt::format(
      "{}; the device takes max_mr = {} regions of all processes together: register fewer, larger ranges, or free what "
      "other processes hold",
      lock, device->max_mr);
}

namespace {

Status registration_error(const VerbsApi& api, const ibv_pd* pd, std::string_view device, std::size_t bytes,
                          int error) {
  const std::string what =
      fmt::format("cannot register {} with {}: {}", size_text(bytes), device, std::strerror(error));
  if (error == EFAULT || error == EACCES || error == EPERM) {
    return {Code::kPermissionDenied, fmt::format("{}; the memory is not mapped, or is mapped read-only", what)};
  }
  // A device in user space pins nothing, and has words of its own.
  const std::string own = api.take_refusal != nullptr ? api.take_refusal() : std::string();
  const std::string limit =
      !own.empty() ? own : registration_limit(attributes_of(api, pd), bytes, error, SystemFiles());
  return {Code::kResourceExhausted, limit.empty() ? what : fmt::format("{}; {}", what, limit)};
}

}  // namespace

Result<ibv_mr*> register_memory(const VerbsApi& api, ibv_pd* pd, std::string_view device, std::span<std::byte> bytes,
                                int access_flags) {
  if (bytes.empty()) {
    return Status(Code::kInvalidArgument, fmt::format("cannot register 0 bytes with {}: give at least 1", device));
  }
  if (api.take_refusal != nullptr) static_cast<void>(api.take_refusal());  // of an earlier call
  errno = 0;
  ibv_mr* region = api.reg_mr(pd, bytes.data(), bytes.size(), access_flags);
  if (region == nullptr) return registration_error(api, pd, device, bytes.size(), errno == 0 ? EINVAL : errno);
  return region;
}

Result<ibv_mr*> register_user_memory(const VerbsApi& api, ibv_pd* pd, std::string_view device,
                                     std::span<std::byte> bytes, Access access) {
  int flags = allows(access, Access::kLocalReadOnly) ? 0 : IBV_ACCESS_LOCAL_WRITE;
  if (allows(access, Access::kRemoteRead)) flags |= IBV_ACCESS_REMOTE_READ;
  if (allows(access, Access::kRemoteWrite)) flags |= IBV_ACCESS_REMOTE_WRITE;
  auto region = register_memory(api, pd, device, bytes, flags);
  // IBTA 10.6.7.1: remote write needs local write, remote read does not.
  const bool write_needed = allows(access, Access::kRemoteWrite);
  if (region || write_needed || region.error().code() != Code::kPermissionDenied) return region;
  log(LogLevel::kDebug, fmt::format("{}; registering it without local write", region.error().message()));
  return register_memory(api, pd, device, bytes, flags & ~IBV_ACCESS_LOCAL_WRITE);
}

}  // namespace fairlead::verbs
