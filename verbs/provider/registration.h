// Memory registration with errors that name the remedy.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "fairlead/memory.h"
#include "fairlead/status.h"
#include "verbs/provider/verbs_api.h"

namespace fairlead::verbs {

/// ibv_reg_mr. Errors: kInvalidArgument (no bytes), kResourceExhausted (RLIMIT_MEMLOCK, the device's limit),
/// kPermissionDenied (the mapping does not allow the access). Threads: any.
Result<ibv_mr*> register_memory(const VerbsApi& api, ibv_pd* pd, std::string_view device, std::span<std::byte> bytes,
                                int access_flags);

/// As above for a user's region: remote access as granted, local write unless the access says kLocalReadOnly. A
/// read-only mapping that does not say so is registered without local write all the same where the grant does not need
/// it; reading into it then fails.
Result<ibv_mr*> register_user_memory(const VerbsApi& api, ibv_pd* pd, std::string_view device,
                                     std::span<std::byte> bytes, Access access);

}  // namespace fairlead::verbs
