// What is said where the system does not let a descriptor be watched: whoever sleeps would not hear of it.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/system/no_descriptor.h"
#include "fairlead/status.h"

namespace fairlead {

/// kResourceExhausted. `what`: what would be watched; `error`: of epoll_create1 or epoll_ctl.
[[nodiscard]] inline Status no_watch(std::string_view what, int error) {
  if (is_descriptor_limit(error)) return no_descriptor(fmt::format("watching {}", what), error);
  return {Code::kResourceExhausted,
          fmt::format("no room to watch {}: {}; {}", what, std::strerror(error),
                      error == ENOMEM ? "the host, or memory.max of the control group, has too little memory"
                                      : "raise fs.epoll.max_user_watches (sysctl)")};
}

}  // namespace fairlead
