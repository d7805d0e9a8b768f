// The processors that this process runs on, by their numbers.
// Threads: functions without state; what is set is of the calling thread, and of threads and processes that it starts.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "fairlead/status.h"

namespace fairlead::bench {

/// Where the calling thread may run, ascending.
[[nodiscard]] std::vector<unsigned> own_cores();
/// "0-3,8" of `usable`. Errors: kInvalidArgument, naming those that are not there, or the text.
Result<std::vector<unsigned>> parse_cores(std::string_view text, std::span<const unsigned> usable);
/// From now on there alone. Errors: kInvalidArgument, what the system says.
Status use_cores(std::span<const unsigned> cores);

}  // namespace fairlead::bench
