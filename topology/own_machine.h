// The machine that this process runs on, read once in its life: hwloc takes from milliseconds to a second of a large
// one.
//
// What may change meanwhile is looked at each time: which CPUs and memory nodes the calling thread may use, and which
// NICs are up. A NIC that came after the first reading is not there. Threads: any; no lock that a fork() could leave
// taken.
#pragma once

#include <string>

#include "fairlead/status.h"
#include "topology/machine.h"

namespace fairlead::topology {

/// Errors: those of read_this_machine(), and kUnavailable where hwloc was told of another machine (HWLOC_XMLFILE
/// without HWLOC_THISSYSTEM=1).
[[nodiscard]] Result<Machine> own_machine();

/// Sets what the calling thread may use now, cores and memories, by /proc/thread-self/status, which knows of cpusets
/// and affinity, and lists CPUs that are offline, too: only those count that /sys/devices/system/cpu/online has. Where
/// the file does not say, it stays as it was. `root`: of the file system, for tests.
void read_allowed(const std::string& root, Machine* machine);

}  // namespace fairlead::topology
