// The I/O part of a topology of hwloc's. Included by the files that include hwloc alone.
#pragma once

#include <hwloc.h>

#include <functional>
#include <string>
#include <vector>

#include "topology/machine.h"

namespace fairlead::topology {

/// The hardware threads of each core, in the order of Machine::cores.
using CoreSets = std::vector<hwloc_const_cpuset_t>;

/// The indexes of the cores that `set` touches; none for null.
[[nodiscard]] std::vector<std::size_t> cores_in(const CoreSets& cores, hwloc_const_cpuset_t set);
/// What the object says of itself under `name`; "" where it, or the object, does not exist.
[[nodiscard]] std::string info(hwloc_obj_t object, const char* name);
/// Calls `each` for every ordered pair of the matrix `name`, such as "NUMALatency"; not at all where there is none. An
/// object may be null.
void for_each_distance(hwloc_topology_t topology, const char* name,
                       const std::function<void(hwloc_obj_t from, hwloc_obj_t to, std::uint64_t value)>& each);
/// Fills bridges, devices and nvlinks, and remarks on what is left out.
void read_devices(hwloc_topology_t topology, const CoreSets& cores, Machine* machine);

}  // namespace fairlead::topology
