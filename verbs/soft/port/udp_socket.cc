#include "verbs/soft/port/udp_socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "verbs/soft/port/interfaces.h"
#include "verbs/soft/wire/headers.h"

namespace fairlead::soft {
namespace {

// Asked for; the kernel caps it at net.core.rmem_max, and nothing here relies on getting it.
constexpr int kBufferBytes = 1 << 20;
constexpr std::uint32_t kFirstLoopback = 0x7f000001;
constexpr std::uint32_t kLoopbackTries = 4096;

void set(int fd, int level, int option, int value) noexcept { ::setsockopt(fd, level, option, &value, sizeof(value)); }

Status bind_error(const Gid& address, int error) {
  const std::string where = fmt::format("{}:{}", to_string(address), kRoceUdpPort);
  if (error != EADDRINUSE) {
    return {error == EADDRNOTAVAIL ? Code::kNotFound : Code::kUnavailable,
            fmt::format("softroce cannot bind UDP {}: {}; use an address of this host", where, std::strerror(error))};
  }
  std::string holder = udp_port_holder(address, kRoceUdpPort);
  if (holder.empty()) holder = "a process of another user or the kernel's rdma_rxe";
  return {Code::kAlreadyExists,
          fmt::format("softroce cannot bind UDP {}: {} holds it; end that, or choose another address with "
                      "FAIRLEAD_SOFT_ADDRESS",
                      where, holder)};
}

}  // namespace

sockaddr_in to_sockaddr(const Gid& address, std::uint16_t port) noexcept {
  sockaddr_in socket_address{};
  socket_address.sin_family = AF_INET;
  socket_address.sin_port = htons(port);
  socket_address.sin_addr.s_addr = htonl(address.ipv4());
  return socket_address;
}

UniqueFd open_udp_socket(const Gid& address, std::uint16_t port, PortUse use) {
  UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fd;
  if (use == PortUse::kShared) set(fd.get(), SOL_SOCKET, SO_REUSEPORT, 1);
  const sockaddr_in local = to_sockaddr(address, port);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&local), sizeof(local)) != 0) {
    const int error = errno;
    fd.reset();
    errno = error;
    return fd;
  }
  set(fd.get(), IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
  set(fd.get(), SOL_SOCKET, SO_SNDBUF, kBufferBytes);
  if (use != PortUse::kSend) {
    set(fd.get(), SOL_SOCKET, SO_RCVBUF, kBufferBytes);
    set(fd.get(), SOL_UDP, UDP_GRO, 1);
    set(fd.get(), IPPROTO_IP, IP_RECVTOS, 1);
  }
  return fd;
}

Result<UniqueFd> bind_roce_port(const Gid& address, PortUse use) {
  UniqueFd fd = open_udp_socket(address, kRoceUdpPort, use);
  if (!fd) return bind_error(address, errno);
  return fd;
}

Result<UniqueFd> bind_free_loopback(Gid& address) {
  int error = EADDRINUSE;
  for (std::uint32_t i = 0; i < kLoopbackTries && error == EADDRINUSE; ++i) {
    address = Gid::from_ipv4(kFirstLoopback + i);
    UniqueFd fd = open_udp_socket(address, kRoceUdpPort, PortUse::kReceive);
    if (fd) return fd;
    error = errno;
  }
  return bind_error(address, error);
}

std::size_t receive_buffer_bytes(int fd) noexcept {
  int bytes = 0;
  socklen_t size = sizeof(bytes);
  ::getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, &size);
  return bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
}

}  // namespace fairlead::soft
