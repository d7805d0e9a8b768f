// IP addresses as RoCE v2 GIDs see them, and the route that the kernel would take to a peer.
//
// 16 bytes in network order; an IPv4 address stands in its mapped form ::ffff:a.b.c.d, as in a GID (IBTA annex A17).
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "fairlead/status.h"

namespace fairlead::verbs {

struct Address {
  std::array<std::uint8_t, 16> bytes{};

  [[nodiscard]] bool operator==(const Address&) const noexcept = default;
  [[nodiscard]] bool is_ipv4() const noexcept;
  [[nodiscard]] bool is_loopback() const noexcept;
  [[nodiscard]] bool is_link_local() const noexcept;
  [[nodiscard]] bool is_zero() const noexcept { return *this == Address{}; }
  /// "127.0.0.2", "fe80::1".
  [[nodiscard]] std::string to_string() const;
};

[[nodiscard]] Address address_of(const ibv_gid& gid) noexcept;
[[nodiscard]] ibv_gid gid_of(const Address& address) noexcept;

/// Numeric IPv4 or IPv6, a scope ("%eth0") allowed. Error: kInvalidArgument, naming the text.
Result<Address> parse_address(std::string_view text);

/// How this host reaches a peer.
struct Route {
  Address peer;
  Address source;               // our address toward the peer
  std::uint32_t interface = 0;  // index of the interface that holds `source`; 0: unknown
  std::uint32_t mtu = 0;        // the largest IP packet that goes this way, bytes; 0: unknown
  /// The peer is on this host: both ends see it so, and may choose loopback addresses.
  [[nodiscard]] bool same_host() const noexcept { return peer.is_loopback() || peer == source; }
};

/// `local` (numeric, may be empty) is our end of a connection that exists already; empty asks the kernel, which sends
/// nothing for it. Errors: kInvalidArgument, kUnavailable (no route).
Result<Route> route_to(std::string_view peer, std::string_view local);

}  // namespace fairlead::verbs
