// On which core each busy lane (a thread that polls a NIC) is to run.
//
// Never two on a core while another that may be used is free, and on its hardware threads in turn; among free ones
// those near the NIC: beside it, then on its socket, then any. Cores outside of the cpuset and the affinity are never
// used, isolated ones only where there are no others. Threads: any.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "topology/machine.h"

namespace fairlead::topology {

struct LanePlace {
  std::optional<std::size_t> core;  // nullopt: this process may use none
  unsigned pu = 0;                  // the hardware thread of it, the system's index
  bool shared = false;              // another lane, or what was busy there, is on this core, too
  std::string reason;               // a clause: "beside rdmap85s0"
};

/// `nics`: the device of each lane. `busy_cpus`: hardware threads that somebody is on already, one for each who is. The
/// result has the order of the lanes, and is the same for the same input.
[[nodiscard]] std::vector<LanePlace> place_lanes(const Machine& machine, const std::vector<std::size_t>& nics,
                                                 const std::vector<unsigned>& busy_cpus = {});

}  // namespace fairlead::topology
