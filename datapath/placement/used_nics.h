// Which NICs carry what an engine's transports send.
//
// A verbs device of the system is a NIC's, by its name. All else goes by addresses: to the interface that has one, and
// from there to the NICs behind it (topology/interfaces.h). Threads: any; functions without state.
#pragma once

#include <string>
#include <vector>

#include "topology/interfaces.h"
#include "topology/machine.h"

namespace fairlead::datapath {

/// One of an engine's transports.
struct UsedTransport {
  std::string name;                         // "verbs:mlx5_0", "verbs:soft0", "tcp"
  std::vector<std::string> addresses = {};  // numeric; of a device of the system none are needed
  bool everywhere = false;                  // it sends over whatever interface leads to a peer
};

using topology::local_addresses;
using topology::LocalAddress;
/// Whether it is a numeric one, and no name or nothing.
[[nodiscard]] bool is_address(const std::string& text) noexcept;

/// By transport the machine's devices, ascending; interfaces that it does not know are added to it. `root`: of the file
/// system, for tests.
[[nodiscard]] std::vector<std::vector<std::size_t>> nics_of(const std::vector<UsedTransport>& transports,
                                                            const std::vector<LocalAddress>& addresses,
                                                            const std::string& root, topology::Machine* machine);

}  // namespace fairlead::datapath
