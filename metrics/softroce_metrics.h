// What softroce devices count, as metrics. From any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "fairlead/softroce.h"
#include "metrics/metric.h"

namespace fairlead::metrics {

/// fairlead_softroce_NAME_total of every counter, a sample for each device of that process. Those of other PID
/// namespaces, which may have the same number there, are listed without one (process 0).
[[nodiscard]] std::vector<Metric> softroce_metrics(const std::vector<SoftroceDevice>& devices, std::uint32_t process);

}  // namespace fairlead::metrics
