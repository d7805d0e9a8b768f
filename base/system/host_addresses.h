// The addresses of this host's interfaces, as the kernel lists them (rtnetlink(7), RTM_GETADDR).
//
// getifaddrs(3) asks for the interfaces besides, under the lock of all that makes, moves and removes them (rtnl), and
// may wait for seconds where others do so. Addresses alone are listed without it since Linux 6.9.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace fairlead {

struct HostAddress {
  std::array<std::uint8_t, 16> bytes{};  // of IPv6; IPv4 is mapped (RFC 4291, 2.5.5.2), as in a GID
  bool ipv4 = false;
  std::uint32_t interface = 0;  // ifindex
};

/// IPv4, then IPv6, in the kernel's order; whether their interfaces are up or not. Nothing, with errno, where they
/// cannot be listed, for want of a descriptor, say. Threads: any.
[[nodiscard]] std::optional<std::vector<HostAddress>> list_host_addresses();

}  // namespace fairlead
