// Threads: a pure function.
#pragma once

#include <string_view>

#include "fairlead/status.h"

namespace fairlead::cli {

/// That `place` (HOST:PORT) was not reached, and what whoever typed it can do; `server`: what should run there,
/// "fairlead serve".
[[nodiscard]] Status unreachable(std::string_view place, const Status& why, std::string_view server);

}  // namespace fairlead::cli
