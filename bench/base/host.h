// What this machine is, for the reports of measurements.
#pragma once

#include <string>

#include "bench/base/json.h"

namespace fairlead::bench {

struct HostInfo {
  std::string cpu_model;  // "unknown" where /proc/cpuinfo does not say
  unsigned cores = 0;     // logical processors that are online
  std::string kernel;     // "Linux 6.1.0-18-amd64"
};

[[nodiscard]] HostInfo host_info();
/// {"cpu_model", "cores", "kernel"}
[[nodiscard]] Json to_json(const HostInfo& host);

}  // namespace fairlead::bench
