// All that a process has to tell of itself and one engine: what the parts of this folder make, together.
#pragma once

#include <vector>

#include "fairlead/engine.h"
#include "metrics/metric.h"

namespace fairlead::metrics {

/// The engine's counters and sessions, what the process counts by reason, where lanes and pool are, what the process
/// takes of its machine, and the softroce devices that it has open. Threads: any.
[[nodiscard]] std::vector<Metric> metrics_of(const Engine& engine);

}  // namespace fairlead::metrics
