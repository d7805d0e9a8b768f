// Memory registration with errors that name the remedy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/system/system_files.h"
#include "fairlead/memory.h"
#include "fairlead/status.h"
#include "verbs/provider/verbs_api.h"

namespace fairlead::verbs {

/// ibv_reg_mr. Errors: kInvalidArgument (no bytes), kResourceExhausted (with the limit that it met),
/// kPermissionDenied (the mapping does not allow the access). Threads: any.
Result<ibv_mr*> register_memory(const VerbsApi& api, ibv_pd* pd, std::string_view device, std::span<std::byte> bytes,
                                int access_flags);

/// As above for a user's region: remote access as granted, local write unless the access says kLocalReadOnly. A
/// read-only mapping that does not say so is registered without local write all the same where the grant does not need
/// it; reading into it then fails.
Result<ibv_mr*> register_user_memory(const VerbsApi& api, ibv_pd* pd, std::string_view device,
                                     std::span<std::byte> bytes, Access access);

/// Which limit a registration of `bytes` met that ended with `error` (an errno): max_mr_size, RLIMIT_MEMLOCK, the
/// control group's memory, max_mr; with the remedy. `device`: nullopt where it cannot be asked. Empty: nothing is
/// known.
[[nodiscard]] std::string registration_limit(const std::optional<ibv_device_attr>& device, std::uint64_t bytes,
                                             int error, const SystemFiles& files);

}  // namespace fairlead::verbs
