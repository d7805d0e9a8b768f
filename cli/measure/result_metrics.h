// What `fairlead bench bw|lat` measured, as metrics (docs/metrics.md). Threads: pure.
#pragma once

#include <span>
#include <vector>

#include "bench/net/report.h"
#include "metrics/metric.h"

namespace fairlead::cli {

/// What was measured over one transport.
struct MeasuredSide {
  const bench::Setting* setting;
  std::span<const bench::Measured> sizes;
};

/// Gauges, in seconds and bytes, with a sample for each side and size; none where nothing was measured.
[[nodiscard]] std::vector<metrics::Metric> result_metrics(const bench::Plan& plan, std::span<const MeasuredSide> sides);

}  // namespace fairlead::cli
