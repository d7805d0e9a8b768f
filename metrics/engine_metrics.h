// What an engine counts, as metrics.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/tally.h"
#include "fairlead/engine.h"
#include "metrics/metric.h"

namespace fairlead::metrics {

[[nodiscard]] std::vector<Metric> engine_metrics(const EngineStats& stats);

/// Where its lanes and its pool are.
[[nodiscard]] std::vector<Metric> placement_metrics(const PlacementReport& placement);

/// What the process counts by reason (base/tally.h).
[[nodiscard]] std::vector<Metric> reason_metrics(const Tally& tally);

/// Sessions that are there now, of a transport and in a state. A transport that is named has all states, the others 0.
struct SessionCount {
  std::string transport, state;
  std::uint64_t count = 0;
};
[[nodiscard]] Metric session_metric(const std::vector<SessionCount>& counts);

/// Whether a server takes what is new.
[[nodiscard]] Metric ready_metric(bool ready);

/// fairlead_build_info{version,commit,build_type} 1
[[nodiscard]] Metric build_metric(std::string version, std::string commit, std::string build_type);
/// Of this binary.
[[nodiscard]] Metric build_metric();

}  // namespace fairlead::metrics
