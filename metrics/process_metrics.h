// What this process takes of its machine, as metrics: with the names that Prometheus' own libraries use
// (process_cpu_seconds_total), and what it has locked or pinned. From any thread.
#pragma once

#include <vector>

#include "base/system/system_files.h"
#include "metrics/metric.h"

namespace fairlead::metrics {

/// From /proc/self; what cannot be read is left out.
[[nodiscard]] std::vector<Metric> process_metrics(const SystemFiles& files = SystemFiles());

}  // namespace fairlead::metrics
