#include "verbs/provider/registration.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>

#include "fairlead/log.h"

namespace fairlead::verbs {
namespace {

std::string size_text(std::uint64_t bytes) {
  constexpr std::uint64_t kKi = 1024;
  if (bytes >= kKi * kKi * kKi) return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (kKi * kKi * kKi));
  if (bytes >= kKi * kKi) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (kKi * kKi));
  if (bytes >= kKi) return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / kKi);
  return fmt::format("{} bytes", bytes);
}

Status registration_error(std::string_view device, std::size_t bytes, int error) {
  const std::string what = fmt::format("cannot register {} with {}", size_text(bytes), device);
  if (error == ENOMEM || error == EAGAIN) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
      return {Code::kResourceExhausted,
              fmt::format("{}: {}; RLIMIT_MEMLOCK is {}: raise it with `ulimit -l` or systemd `LimitMEMLOCK=`", what,
                          std::strerror(error), size_text(limit.rlim_cur))};
    }
    return {Code::kResourceExhausted, fmt::format("{}: {}", what, std::strerror(error))};
  }
  if (error == EFAULT || error == EACCES || error == EPERM) {
    return {Code::kPermissionDenied,
            fmt::format("{}: {}; the memory is not mapped, or is mapped read-only", what, std::strerror(error))};
  }
  return {Code::kResourceExhausted, fmt::format("{}: {}", what, std::strerror(error))};
}

}  // namespace

Result<ibv_mr*> register_memory(const VerbsApi& api, ibv_pd* pd, std::string_view device, std::span<std::byte> bytes,
                                int access_flags) {
  if (bytes.empty()) {
    return Status(Code::kInvalidArgument, fmt::format("cannot register 0 bytes with {}: give at least 1", device));
  }
  errno = 0;
  ibv_mr* region = api.reg_mr(pd, bytes.data(), bytes.size(), access_flags);
  if (region == nullptr) return registration_error(device, bytes.size(), errno == 0 ? EINVAL : errno);
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
