// What an engine counts, as metrics.
#pragma once

#include <vector>

#include "fairlead/engine.h"
#include "metrics/metric.h"

namespace fairlead::metrics {

[[nodiscard]] std::vector<Metric> engine_metrics(const EngineStats& stats);

/// Where its lanes and its pool are.
[[nodiscard]] std::vector<Metric> placement_metrics(const PlacementReport& placement);

/// fairlead_build_info{version,commit,build_type} 1
[[nodiscard]] Metric build_metric(std::string version, std::string commit, std::string build_type);

}  // namespace fairlead::metrics
