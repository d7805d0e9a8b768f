// Bandwidths for what a machine, or the file it was read from, does not tell: the default table, and what a user sets.
//
// All figures are bytes per second in one direction. Sources of the table, for those of the link after its encoding,
// without the overhead of packets:
//   PCI Express       lanes x rate x 128/130 (3.0 to 5.0), PCI-SIG; a NIC's port that says nothing gets the narrowest
//                     16 lanes that carry its rate, any other device those of 3.0
//   between sockets   what NCCL takes by processor (src/graph/topo.h): Broadwell 6, Skylake 10, Sapphire Rapids 22,
//                     Granite Rapids 40, Zen 16, POWER9 32, else 6 GB/s
//   memory            channels x transfer rate of a package by processor (vendors' data sheets), shared among its NUMA
//                     nodes; eight channels of DDR4-3200 where the processor is not known
//   NICs              by PCI identifier (pci.ids, vendors' data sheets; EFA: Amazon's instance tables); otherwise
//                     100 Gb/s where there is RDMA, 10 Gb/s where not
// Threads: const members from any thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fairlead/status.h"
#include "topology/graph.h"
#include "topology/machine.h"

namespace fairlead::topology {

/// Name and bytes per second: of one thing (a NIC's name: its ports; a PCI address: its link; "numa0": that memory) or
/// of all of a kind ("memory": each NUMA node, "socket": each link between sockets, "pcie": each link whose speed is
/// not said, "nic": each NIC whose rate is not said). The last of a name holds.
using BandwidthOverrides = std::vector<std::pair<std::string, double>>;

/// "mlx5_0=12.5,socket=20": gigabytes (10^9) per second. Errors: kInvalidArgument: no NAME=NUMBER, or a number that is
/// not above 0 and at most 1,000,000.
[[nodiscard]] Result<BandwidthOverrides> parse_bandwidths(std::string_view text);

class BandwidthTable {
 public:
  explicit BandwidthTable(BandwidthOverrides overrides = {}) : overrides_(std::move(overrides)) {}

  /// kNotFound for an override of something that `machine` does not have; it says what can be named.
  [[nodiscard]] Status check(const Machine& machine) const;

  [[nodiscard]] Bandwidth memory(const Machine& machine, std::size_t memory) const;
  /// Between two packages of the machine.
  [[nodiscard]] Bandwidth socket(const Machine& machine, std::size_t package) const;
  /// The sum of its ports.
  [[nodiscard]] Bandwidth nic(const Device& device) const;
  [[nodiscard]] Bandwidth link(const Device& device) const;
  /// `widest_below`: the widest link of what hangs on it, which a bridge that says nothing is taken to carry.
  [[nodiscard]] Bandwidth link(const Bridge& bridge, const Bandwidth& widest_below) const;

 private:
  [[nodiscard]] const double* find(std::string_view name) const;

  BandwidthOverrides overrides_;
};

}  // namespace fairlead::topology
