// Where an end of a measurement has its memory: --memory, of `fairlead bench` and `fairlead gain`.
#pragma once

#include <string>

#include "bench/net/options.h"
#include "cli/base/args.h"

namespace fairlead::cli {

/// `place` must outlive args.parse().
void add_memory(Args& args, bench::Place* place);

/// Why the plan's operation cannot be with such memory; empty: it can.
[[nodiscard]] std::string misplaced_memory(const bench::Plan& plan);

}  // namespace fairlead::cli
