// One UDP socket for RoCE v2, over IPv4 or IPv6 as its address is: bound, unconnected, never fragmenting (so that its
// IPv4 ids are known, see wire/icrc.h).
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

#include "base/unique_fd.h"
#include "fairlead/status.h"
#include "verbs/soft/wire/gid.h"

namespace fairlead::soft {

/// What a socket is for. A receiver receives coalesced (UDP_GRO) where the kernel can; shared: others of the same user
/// may bind the same port (SO_REUSEPORT).
enum class PortUse : std::uint8_t { kSend, kSendShared, kReceive, kShared };

/// A socket bound to address:port, or -1 with errno set. `scope` as for SocketAddress.
[[nodiscard]] UniqueFd open_udp_socket(const Gid& address, std::uint16_t port, PortUse use, std::uint32_t scope = 0);

/// Packets between two addresses of this host leave from the port that is the sender's address's own, and are taken
/// from no other. The system lets every user send from any address of the host, but from no port that another user has:
/// who has the guard of a port, at all addresses at once, has the port.
[[nodiscard]] std::uint16_t host_sender_port(const Gid& address) noexcept;
/// Receives nothing. Invalid, with errno, where another user has the port at any address.
[[nodiscard]] UniqueFd guard_sender_port(std::uint16_t port) noexcept;

/// They arrive with their traffic class. Always so over IPv6.
void receive_traffic_class(int fd, const Gid& address) noexcept;

/// open_udp_socket for a receiver, or the reason in words: who holds the port, and the remedy.
[[nodiscard]] Result<UniqueFd> bind_roce_port(const Gid& address, PortUse use, std::uint32_t scope = 0);

/// A socket on the first free address of 127.0.0.0/8 (port 4791) whose sender port is free too, and that address in
/// `address`.
[[nodiscard]] Result<UniqueFd> bind_free_loopback(Gid& address);

/// What leaves through the socket has this traffic class and hop limit (0: the system's default) unless it says
/// otherwise. False if the system refuses.
[[nodiscard]] bool set_sending_defaults(int fd, const Gid& address, std::uint8_t traffic_class,
                                        std::uint8_t hop_limit) noexcept;

/// As near to it as the system allows.
void set_receive_buffer(int fd, std::size_t bytes) noexcept;
/// The socket's real receive buffer in bytes, as the kernel accounts it.
[[nodiscard]] std::size_t receive_buffer_bytes(int fd) noexcept;

/// An IPv4 or IPv6 address with a port, as the system takes and gives it.
class SocketAddress {
 public:
  /// To be filled by the system.
  SocketAddress() noexcept : v6_{} {}
  /// `scope`: the interface's index, which a link-local IPv6 address needs.
  SocketAddress(const Gid& address, std::uint16_t port, std::uint32_t scope = 0) noexcept;

  [[nodiscard]] sockaddr* get() noexcept { return &any_; }
  [[nodiscard]] const sockaddr* get() const noexcept { return &any_; }
  [[nodiscard]] socklen_t size() const noexcept {
    return any_.sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  }
  [[nodiscard]] Gid gid() const noexcept;
  [[nodiscard]] std::uint16_t port() const noexcept;

 private:
  union {
    sockaddr any_;
    sockaddr_in v4_;
    sockaddr_in6 v6_;
  };
};

}  // namespace fairlead::soft
