// Text into files that other programs wait for or read.
#pragma once

#include <string>
#include <string_view>

#include "fairlead/status.h"

namespace fairlead::bench {

/// Writes beside the file and renames, so that a reader sees nothing or everything. "-" writes to standard output.
/// Errors name the file and the system's reason.
Status write_text(const std::string& path, std::string_view text);

}  // namespace fairlead::bench
