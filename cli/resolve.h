// The address of a host. Blocks as long as the system's resolver does.
#pragma once

#include <string>

#include "fairlead/status.h"

namespace fairlead::cli {

/// Numeric, the first that the resolver names. Error: kNotFound, with its words.
Result<std::string> numeric_address(const std::string& host);

}  // namespace fairlead::cli
