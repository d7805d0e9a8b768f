// The active end of a measurement: one size after the other, timed, then verified.
#pragma once

#include "bench/net/load.h"

namespace fairlead::bench {

/// Measures one size. Errors: those of a load (load.h); kCancelled if it was stopped before its clock started.
Result<Sample> measure(Link& link, const Plan& plan, std::uint64_t size);

}  // namespace fairlead::bench
