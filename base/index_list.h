// Lists of indexes as Linux writes them: "0-3,8,10-11".
// Threads: functions without state.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fairlead/status.h"

namespace fairlead {

/// The indexes in ascending order, each once. Blanks and a line feed around it are no matter; "" is the empty list.
/// Errors: kInvalidArgument for anything else, and beyond 1,048,575.
[[nodiscard]] Result<std::vector<unsigned>> parse_index_list(std::string_view text);
/// "0-3,8"; "none" where there is none. Order and duplicates of `indexes` are no matter.
[[nodiscard]] std::string to_index_list(std::span<const unsigned> indexes);

}  // namespace fairlead
