// Files with a line for each principal and its settings: "NAME memory=8G sessions=4", comments from '#' to the end of
// the line. "*" is whoever has no line. Threads: pure functions.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "fairlead/status.h"

namespace fairlead::cli {

/// Calls `begin` with the name of each line, then `set` with each of its settings. Errors: kInvalidArgument with file
/// and line: what `set` says, a name that is none or that stands twice; a file without a line, where `what` says of
/// what.
Status read_principal_lines(std::string_view text, const std::string& path, std::string_view what,
                            const std::function<void(const std::string& name)>& begin,
                            const std::function<Status(std::string_view name, std::string_view value)>& set);

}  // namespace fairlead::cli
