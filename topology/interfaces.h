// Network interfaces of this machine, as the NICs that they lead to.
//
// An interface is a NIC's, or stands on some (a bond, a bridge, a VLAN). One that is on no NIC that the machine knows,
// such as a veth or what a hypervisor makes without PCI, counts as one that is near everything. Threads: any; functions
// without state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "topology/machine.h"

namespace fairlead::topology {

struct LocalAddress {
  std::string address;  // numeric, without a scope
  std::string interface;
};
/// Of interfaces that are up, but the loopback's.
[[nodiscard]] std::vector<LocalAddress> local_addresses();

enum class Unknown : std::uint8_t { kAdd, kAddWhereNoNicIs };  // what to do with interfaces on no NIC

/// The machine's devices that these interfaces lead to, ascending. Interfaces on no NIC are added to it, and their
/// rates are read; with kAddWhereNoNicIs only if none of the others leads to a NIC: beside NICs, bridges of containers
/// and the like lead to no other host. `root`: of the file system, for tests.
std::vector<std::size_t> nics_behind(const std::set<std::string>& interfaces, Unknown unknown, const std::string& root,
                                     Machine* machine);
/// The NIC that has the name in this list of its names; none or one.
[[nodiscard]] std::vector<std::size_t> nics_named(const Machine& machine, std::vector<std::string> Device::* names,
                                                  std::string_view name);

}  // namespace fairlead::topology
