// What `fairlead gain` found, as metrics (docs/metrics.md). Threads: pure.
#pragma once

#include <vector>

#include "bench/gain/report.h"
#include "metrics/metric.h"

namespace fairlead::cli {

/// Gauges, in seconds and bytes: both sides' figures, ratios with their intervals, and the verdict, of which each word
/// that there may be has a sample, 1 for the one that holds.
[[nodiscard]] std::vector<metrics::Metric> gain_metrics(const bench::GainReport& report);

}  // namespace fairlead::cli
