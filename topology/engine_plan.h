// What an engine makes of a machine: a hardware thread for each lane, the NUMA node of its pool, and how much of what
// it sends each of its NICs should carry; each with its reason.
//
// Nothing is chosen where there is nothing to choose: on one node, or where nobody says which node a NIC is at, the
// kernel's scheduler knows better. Threads: any; functions without state.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/placement_wish.h"
#include "fairlead/status.h"
#include "topology/lanes.h"
#include "topology/machine.h"

namespace fairlead::topology {

/// What the engine has to place.
struct EngineUse {
  std::size_t lanes = 1;
  std::vector<std::size_t> nics = {};    // devices of the machine that carry its traffic, each once
  std::vector<unsigned> busy_cpus = {};  // hardware threads that lanes of other engines are on, one for each
};

/// How much a NIC should carry of what is spread over several.
struct NicShare {
  std::size_t device = 0;
  double rate = 0;  // bytes per second, when all of them send from the pool; 0: the others carry all that can be sent
  bool assumed = false;  // it follows from a bandwidth that is assumed
};

struct EnginePlan {
  std::vector<LanePlace> lanes;      // by lane; without a core: not pinned
  std::optional<std::size_t> pool;   // a memory of the machine; nullopt: not bound
  std::string pool_reason;           // a clause
  std::vector<NicShare> shares;      // of EngineUse::nics, in its order
  std::vector<std::string> remarks;  // what holds for all, in sentences
};

/// Errors: kInvalidArgument (no such node, or this process may use none of its cores or CPUs; says which there are).
/// With kAuto and kOff none.
[[nodiscard]] Result<EnginePlan> plan_engine(const Machine& machine, const PlacementWish& wish, const EngineUse& use);

/// "lane 0 on CPU 8 (beside mlx5_0); pool on numa1 (beside mlx5_0)"
[[nodiscard]] std::string to_string(const Machine& machine, const EnginePlan& plan);

}  // namespace fairlead::topology
