// What this machine is, for the reports of measurements.
#pragma once

#include <string>

#include "bench/base/json.h"

namespace fairlead::bench {

struct HostInfo {
  std::string cpu_model;  // "unknown" where /proc/cpuinfo does not say
  unsigned cores = 0;     // logical processors that are online
  std::string kernel;     // "Linux 6.1.0-18-amd64"
  std::string name;       // as the host calls itself
  std::string boot;       // the kernel's boot id, which no other machine has; empty: it does not say
  unsigned usable = 0;    // processors that this process may run on
  double quota = 0;       // cores' time that its control groups allow; 0: no limit
};

[[nodiscard]] HostInfo host_info();
/// {"cpu_model", "cores", "kernel", "name", "boot", "usable_cores", "cpu_quota": null if there is no limit}
[[nodiscard]] Json to_json(const HostInfo& host);

}  // namespace fairlead::bench
