// Memory registration with errors that name the remedy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/system/system_files.h"
#include "fairlead/memory.h"
#include "fairlead/status.h"
#include "verbs/provider/verbs_api.h"

namespace fairlead::verbs {

/// What a registration is held against before the device is asked, and its refusal afterwards.
struct RegionLimits {
  std::uint64_t largest = 0;  // bytes, max_mr_size; 0: the device does not say
  std::uint64_t most = 0;     // regions of all processes together, max_mr; 0: the device does not say
  std::uint64_t held = 0;     // of these by this process, as far as it has counted
  bool pins = false;          // pages of this host, which RLIMIT_MEMLOCK counts
};
/// What the device says; nothing where it cannot be asked.
[[nodiscard]] RegionLimits region_limits(const ibv_device_attr& attributes) noexcept;

/// ibv_reg_mr. Errors: kInvalidArgument (no bytes), kResourceExhausted (with the limit that it met, or would have:
/// registration_bar()), kPermissionDenied (the mapping does not allow the access). Threads: any.
Result<ibv_mr*> register_memory(const VerbsApi& api, ibv_pd* pd, std::string_view device, std::span<std::byte> bytes,
                                int access_flags, const RegionLimits& limits = {});

/// As above for a user's region: remote access as granted, local write unless the access says kLocalReadOnly. A
/// read-only mapping that does not say so is registered without local write all the same where the grant does not need
/// it; reading into it then fails.
Result<ibv_mr*> register_user_memory(const VerbsApi& api, ibv_pd* pd, std::string_view device,
                                     std::span<std::byte> bytes, Access access, const RegionLimits& limits = {});

/// Whether remote keys of the device mean something: two regions have two. Of QEMU's emulated PVRDMA (7.2) all have the
/// same, and no peer can write or read by them. True where it cannot be tried.
[[nodiscard]] bool has_remote_keys(const VerbsApi& api, ibv_pd* pd);

/// Which limit forbids a registration of `bytes` that nobody has asked the device for yet: max_mr_size, max_mr, or
/// RLIMIT_MEMLOCK. Control groups' memory is not looked at: what is registered may have been charged to another. Empty:
/// nothing speaks against it.
[[nodiscard]] std::string registration_bar(const RegionLimits& limits, std::uint64_t bytes, const SystemFiles& files);
/// Which limit a registration of `bytes` met that ended with `error` (an errno): max_mr_size, RLIMIT_MEMLOCK, the
/// control group's memory, max_mr; with the remedy. Empty: nothing is known.
[[nodiscard]] std::string registration_limit(const RegionLimits& device, std::uint64_t bytes, int error,
                                             const SystemFiles& files);

}  // namespace fairlead::verbs
