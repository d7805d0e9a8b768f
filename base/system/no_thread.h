// What is said where the system gives no thread.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <system_error>

#include "fairlead/status.h"

namespace fairlead {

/// kResourceExhausted. `error`: as std::thread threw it.
[[nodiscard]] inline Status no_thread(std::string_view whose, const std::system_error& error) {
  return {
      Code::kResourceExhausted,
      fmt::format("no thread for {} ({}): raise `ulimit -u`, pids.max of the control group, or TasksMax of the service",
                  whose, error.code().message())};
}

}  // namespace fairlead
