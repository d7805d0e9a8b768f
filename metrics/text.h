// Metrics as Prometheus reads them. Source: "Text-based format", version 0.0.4, of Prometheus' documentation.
//
// Written here, and not by prometheus-cpp, because it is part of libfairlead, which brings no library into programs of
// others that these may have in another version. Tests compare the two. Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "metrics/metric.h"

namespace fairlead::metrics {

[[nodiscard]] std::string text_of(const std::vector<Metric>& metrics);

}  // namespace fairlead::metrics
