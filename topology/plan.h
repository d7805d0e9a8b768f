// Where data should go: for pairs of a memory or GPU and a peer the NICs and how much over each, a core for each lane,
// and the NUMA node for pool memory; each with its reason.
//
// Rates are bytes per second toward the peer, when all pairs of the plan send at once. They follow from the bandwidths
// of the graph alone: protocol overhead, and what memory does besides, are not in them. Threads: any.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fairlead/status.h"
#include "topology/flow.h"
#include "topology/graph_builder.h"
#include "topology/lanes.h"
#include "topology/machine.h"

namespace fairlead::topology {

/// What data comes from: a memory, or a device that is a GPU.
struct Endpoint {
  bool gpu = false;
  std::size_t index = 0;
};
struct Pair {
  Endpoint endpoint;
  std::string peer;  // in words; peers are all reached over every NIC
};

/// "numa0", "gpu3", or a GPU's PCI address. Errors: kNotFound, with what there is.
[[nodiscard]] Result<Endpoint> find_endpoint(const Machine& machine, std::string_view name);
[[nodiscard]] std::string name_of(const Machine& machine, Endpoint endpoint);
/// All memories that a process may use, or all GPUs, each to `peer`.
[[nodiscard]] std::vector<Pair> memory_pairs(const Machine& machine, const std::string& peer);
[[nodiscard]] std::vector<Pair> gpu_pairs(const Machine& machine, const std::string& peer);

struct NicUse {
  std::size_t device = 0;
  double rate = 0;
  double width = 0;           // of the widest way over it
  std::vector<Route> routes;  // theirs add up to `rate`
  LanePlace lane;
  std::string reason;           // a clause: "behind the same PCIe switch (0000:2d:04.0)"
  std::string limit;            // what keeps it from carrying more, with its bandwidth
  std::optional<Hop> limiting;  // that step
  bool assumed = false;         // its bandwidth, or what it leaves beside another pair's rate that is so
};
struct NicPassed {
  std::size_t device = 0;
  std::string reason;
};
struct Placement {
  Pair pair;
  double alone = 0;                 // if no other pair sent
  double rate = 0;                  // its share
  std::vector<NicUse> nics;         // the widest first, of these the nearest
  std::vector<NicPassed> passed;    // the machine's other NICs
  std::optional<std::size_t> pool;  // a memory; nullopt: this process may use none
  std::string pool_reason;
};
/// Whether its rate follows, in part, from bandwidths that are assumed.
[[nodiscard]] bool is_assumed(const Placement& placement);
struct Plan {
  std::vector<Placement> placements;  // as the pairs
  std::vector<std::string> remarks;   // what holds for all, in sentences
};

[[nodiscard]] Plan make_plan(const Machine& machine, const MachineGraph& made, std::span<const Pair> pairs);

}  // namespace fairlead::topology
