// What `fairlead serve` counts beside its engine, as metrics. From any thread.
#pragma once

#include <vector>

#include "cli/push_server.h"
#include "metrics/metric.h"

namespace fairlead::cli {

[[nodiscard]] std::vector<metrics::Metric> serve_metrics(const ServeCounters& counters, const ModelStore& store);

}  // namespace fairlead::cli
