// --log-format and --log-level: how a server logs.
#pragma once

#include "cli/base/args.h"

namespace fairlead::cli {

/// They are in force from parse() on.
void add_log_options(Args& args);

}  // namespace fairlead::cli
