// One UDP socket for RoCE v2: bound, unconnected, never fragmenting (so that its IPv4 ids are known, see wire/icrc.h).
#pragma once

#include <netinet/in.h>

#include <cstddef>
#include <cstdint>

#include "datapath/base/unique_fd.h"
#include "fairlead/status.h"
#include "verbs/soft/wire/gid.h"

namespace fairlead::soft {

/// What a socket is for. A receiver receives coalesced (UDP_GRO) where the kernel can; shared: others of the same user
/// may bind the same port (SO_REUSEPORT).
enum class PortUse : std::uint8_t { kSend, kReceive, kShared };

/// A socket bound to address:port, or -1 with errno set.
[[nodiscard]] UniqueFd open_udp_socket(const Gid& address, std::uint16_t port, PortUse use);

/// open_udp_socket for a receiver, or the reason in words: who holds the port, and the remedy.
[[nodiscard]] Result<UniqueFd> bind_roce_port(const Gid& address, PortUse use);

/// A socket on the first free address of 127.0.0.0/8 (port 4791), and that address in `address`.
[[nodiscard]] Result<UniqueFd> bind_free_loopback(Gid& address);

/// The socket's real receive buffer in bytes, as the kernel accounts it.
[[nodiscard]] std::size_t receive_buffer_bytes(int fd) noexcept;

[[nodiscard]] sockaddr_in to_sockaddr(const Gid& address, std::uint16_t port) noexcept;

}  // namespace fairlead::soft
