// What Linux says of the machine this runs on, and hwloc does not.
//
// Functions take the root of the file system, so that a test can make one up. What is absent leaves things as they are,
// with a remark where that matters. Threads: functions without state.
#pragma once

#include <string>

#include "topology/machine.h"

namespace fairlead::topology {

/// Marks cores that the kernel keeps its scheduler off: /sys/devices/system/cpu/isolated.
void read_isolated_cores(const std::string& root, Machine* machine);
/// Rates of NICs: /sys/class/infiniband/NAME/ports/N/{rate,state} and /sys/class/net/NAME/{speed,operstate}. The sum of
/// the ports that are up; of those that are down where none is up, and then `rate_is_down`. Where none has a rate the
/// one from before stays.
void read_nic_rates(const std::string& root, Machine* machine);
/// The smallest quota of this process's cgroup and those above it: version 2's cpu.max, version 1's cpu.cfs_quota_us.
void read_cpu_quota(const std::string& root, Machine* machine);

}  // namespace fairlead::topology
