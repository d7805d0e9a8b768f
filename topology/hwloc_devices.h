// The I/O part of a topology of hwloc's. Included by the files that include hwloc alone.
#pragma once

#include <hwloc.h>

#include <vector>

#include "topology/machine.h"

namespace fairlead::topology {

/// The hardware threads of each core, in the order of Machine::cores.
using CoreSets = std::vector<hwloc_const_cpuset_t>;

/// The indexes of the cores that `set` touches; none for null.
[[nodiscard]] std::vector<std::size_t> cores_in(const CoreSets& cores, hwloc_const_cpuset_t set);
/// Fills bridges, devices and nvlinks, and remarks on what is left out.
void read_devices(hwloc_topology_t topology, const CoreSets& cores, Machine* machine);

}  // namespace fairlead::topology
