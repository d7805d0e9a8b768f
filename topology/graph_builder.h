// From a machine to its graph.
#pragma once

#include <optional>
#include <vector>

#include "topology/bandwidth_table.h"
#include "topology/graph.h"
#include "topology/machine.h"

namespace fairlead::topology {

struct MachineGraph {
  Graph graph;
  std::size_t network = 0;            // the node beyond the NICs
  std::vector<std::size_t> packages;  // of Machine: node
  std::vector<std::size_t> memories;
  std::vector<std::size_t> bridges;
  std::vector<std::optional<std::size_t>> devices;  // nullopt: neither NIC, GPU nor NVSwitch
  std::vector<bool> carries;                        // of devices: a NIC with an edge to the network
};

/// Where NICs with RDMA exist the others have no edge to the network: they would carry by TCP what the first carry by
/// RDMA. Threads: any.
[[nodiscard]] MachineGraph build_graph(const Machine& machine, const BandwidthTable& table);

}  // namespace fairlead::topology
