// What a GPU server counts, as metrics (docs/metrics.md).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fairlead/command_service.h"
#include "metrics/metric.h"

namespace fairlead::cli {

/// What stands for peers without a key: no principal has such a name.
inline constexpr std::string_view kAnonymousTenant = "(anonymous)";

/// `devices`: what they are called, by number.
[[nodiscard]] std::vector<metrics::Metric> tenant_metrics(const command::ServiceStats& service,
                                                          const std::vector<command::TenantStats>& tenants,
                                                          const std::vector<std::string>& devices);

}  // namespace fairlead::cli
