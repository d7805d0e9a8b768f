// Socket addresses and what the host's routes say about them. An IPv4 address is its mapped GID; "any" is the null GID.
//
// Threads: any.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>

#include "verbs/soft/wire/gid.h"

namespace fairlead::cm {

using soft::Gid;

struct IpEndpoint {
  Gid address;
  std::uint16_t port = 0;
};

/// Nothing for a family that is neither IPv4 nor IPv6.
[[nodiscard]] std::optional<IpEndpoint> from_sockaddr(const sockaddr& address) noexcept;
/// A mapped address becomes AF_INET unless `ipv6`.
void to_sockaddr(const IpEndpoint& endpoint, bool ipv6, sockaddr_storage& to) noexcept;
[[nodiscard]] socklen_t length_of(const sockaddr& address) noexcept;

[[nodiscard]] bool is_loopback(const Gid& address) noexcept;
/// Whether it is an address of this host.
[[nodiscard]] bool is_local(const Gid& address) noexcept;
/// The address from which the host would send to this one; nothing where there is no route.
[[nodiscard]] std::optional<Gid> source_toward(const Gid& destination) noexcept;

}  // namespace fairlead::cm
