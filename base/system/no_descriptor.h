// What is said where the system gives no file descriptor.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "fairlead/status.h"

namespace fairlead {

/// Whether an errno says that this process, or the host, has as many as it may.
[[nodiscard]] inline bool is_descriptor_limit(int error) noexcept { return error == EMFILE || error == ENFILE; }

/// kResourceExhausted. `whose`: what goes without it; `error`: one of those.
[[nodiscard]] inline Status no_descriptor(std::string_view whose, int error) {
  return {Code::kResourceExhausted, fmt::format("no descriptor for {} ({}): raise {}", whose, std::strerror(error),
                                                error == ENFILE ? "the host's limit, fs.file-max" : "`ulimit -n`")};
}

}  // namespace fairlead
