// What softroce devices count, as metrics. From any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "metrics/metric.h"
#include "verbs/soft/device/live_devices.h"

namespace fairlead::cli {

/// fairlead_softroce_NAME_total of every counter, a sample for each device of that process.
[[nodiscard]] std::vector<metrics::Metric> softroce_metrics(const std::vector<soft::LiveDevice>& devices,
                                                            std::uint32_t process);

}  // namespace fairlead::cli
