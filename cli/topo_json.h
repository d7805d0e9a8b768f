// A machine, its graph and plans as JSON (docs/topology.md has the fields). Bandwidths are bytes per second; what is
// not known is null. Threads: functions without state.
#pragma once

#include <vector>

#include "bench/base/json.h"
#include "topology/graph_builder.h"
#include "topology/machine.h"
#include "topology/plan.h"

namespace fairlead::cli {

/// `plans` are not null.
[[nodiscard]] bench::Json topo_to_json(const topology::Machine& machine, const topology::MachineGraph& made,
                                       const std::vector<const topology::Plan*>& plans);

}  // namespace fairlead::cli
