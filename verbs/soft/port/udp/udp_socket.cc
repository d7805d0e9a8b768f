#include "verbs/soft/port/udp/udp_socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "verbs/soft/port/interfaces.h"
#include "verbs/soft/wire/headers.h"

namespace fairlead::soft {
namespace {

// Asked for; the kernel caps them at net.core.rmem_max and wmem_max, and nothing here relies on getting them.
constexpr int kBufferBytes = 1 << 20;
constexpr int kReceiveBufferBytes = 16 << 20;
constexpr std::uint32_t kFirstLoopback = 0x7f000001;
constexpr std::uint32_t kLoopbackTries = 4096;
// Below those that systems give to who asks for any.
constexpr std::uint16_t kFirstSenderPort = 20480;
constexpr std::uint16_t kSenderPorts = 12288;

bool set(int fd, int level, int option, int value) noexcept {
  return ::setsockopt(fd, level, option, &value, sizeof(value)) == 0;
}

Status bind_error(const Gid& address, int error) {
  const std::string where = fmt::format("{}:{}", to_string(address), kRoceUdpPort);
  if (error == EMFILE || error == ENFILE) {
    return {Code::kResourceExhausted,
            fmt::format("softroce cannot open a socket for {}: {}; raise RLIMIT_NOFILE (`ulimit -n`)", where,
                        std::strerror(error))};
  }
  if (error != EADDRINUSE) {
    return {error == EADDRNOTAVAIL ? Code::kNotFound : Code::kUnavailable,
            fmt::format("softroce cannot bind UDP {}: {}; use an address of this host", where, std::strerror(error))};
  }
  std::string holder = udp_port_holder(address, kRoceUdpPort);
  if (holder.empty()) holder = "the kernel's rdma_rxe or a process that cannot be seen";
  return {Code::kAlreadyExists,
          fmt::format("softroce cannot bind UDP {}: {} holds it; end that, or choose another address with "
                      "FAIRLEAD_SOFT_ADDRESS",
                      where, holder)};
}

}  // namespace

SocketAddress::SocketAddress(const Gid& address, std::uint16_t port, std::uint32_t scope) noexcept : SocketAddress() {
  if (address.is_ipv4()) {
    v4_.sin_family = AF_INET;
    v4_.sin_port = htons(port);
    v4_.sin_addr.s_addr = htonl(address.ipv4());
  } else {
    v6_.sin6_family = AF_INET6;
    v6_.sin6_port = htons(port);
    v6_.sin6_scope_id = IN6_IS_ADDR_LINKLOCAL(reinterpret_cast<const in6_addr*>(address.bytes.data())) ? scope : 0;
    std::memcpy(&v6_.sin6_addr, address.bytes.data(), address.bytes.size());
  }
}

Gid SocketAddress::gid() const noexcept {
  if (any_.sa_family == AF_INET) return Gid::from_ipv4(ntohl(v4_.sin_addr.s_addr));
  Gid gid;
  std::memcpy(gid.bytes.data(), &v6_.sin6_addr, gid.bytes.size());
  return gid;
}

std::uint16_t SocketAddress::port() const noexcept {
  return ntohs(any_.sa_family == AF_INET ? v4_.sin_port : v6_.sin6_port);
}

UniqueFd open_udp_socket(const Gid& address, std::uint16_t port, PortUse use, std::uint32_t scope) {
  const SocketAddress local(address, port, scope);
  const bool v4 = address.is_ipv4();
  UniqueFd fd(::socket(local.get()->sa_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fd;
  if (use == PortUse::kShared || use == PortUse::kSendShared) set(fd.get(), SOL_SOCKET, SO_REUSEPORT, 1);
  if (!v4) set(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
  if (::bind(fd.get(), local.get(), local.size()) != 0) {
    const int error = errno;
    fd.reset();
    errno = error;
    return fd;
  }
  if (v4) {
    set(fd.get(), IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
  } else {
    set(fd.get(), IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
  }
  set(fd.get(), SOL_SOCKET, SO_SNDBUF, kBufferBytes);
  if (use == PortUse::kReceive || use == PortUse::kShared) {
    set(fd.get(), SOL_SOCKET, SO_RCVBUF, kReceiveBufferBytes);
    set(fd.get(), SOL_UDP, UDP_GRO, 1);
    if (!v4) receive_traffic_class(fd.get(), address);
    // Linux rxe sends no UDP checksum, which IPv6 takes only where it is told to; the ICRC covers more.
    if (!v4) set(fd.get(), SOL_UDP, UDP_NO_CHECK6_RX, 1);
  }
  return fd;
}

std::uint16_t host_sender_port(const Gid& address) noexcept {
  return static_cast<std::uint16_t>(kFirstSenderPort + stable_hash(address) % kSenderPorts);
}

UniqueFd guard_sender_port(std::uint16_t port) noexcept {
  // IPv6's conflicts with IPv4's too.
  UniqueFd fd(::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const bool v4 = !fd;
  if (v4) fd.reset(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd) return fd;
  sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program{1, &nothing};
  set(fd.get(), SOL_SOCKET, SO_REUSEPORT, 1);
  if (!v4) set(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  const SocketAddress all(v4 ? Gid::from_ipv4(0) : Gid(), port);
  if (::setsockopt(fd.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0 &&
      ::bind(fd.get(), all.get(), all.size()) == 0) {
    return fd;
  }
  const int error = errno;
  fd.reset();
  errno = error;
  return fd;
}

void receive_traffic_class(int fd, const Gid& address) noexcept {
  const bool v4 = address.is_ipv4();
  set(fd, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_RECVTOS : IPV6_RECVTCLASS, 1);
}

bool set_sending_defaults(int fd, const Gid& address, std::uint8_t traffic_class, std::uint8_t hop_limit) noexcept {
  const bool v4 = address.is_ipv4();
  const int level = v4 ? IPPROTO_IP : IPPROTO_IPV6;
  return (traffic_class == 0 || set(fd, level, v4 ? IP_TOS : IPV6_TCLASS, traffic_class)) &&
         (hop_limit == 0 || set(fd, level, v4 ? IP_TTL : IPV6_UNICAST_HOPS, hop_limit));
}

Result<UniqueFd> bind_roce_port(const Gid& address, PortUse use, std::uint32_t scope) {
  UniqueFd fd = open_udp_socket(address, kRoceUdpPort, use, scope);
  if (!fd) return bind_error(address, errno);
  return fd;
}

Result<UniqueFd> bind_free_loopback(Gid& address) {
  for (std::uint32_t i = 0; i < kLoopbackTries; ++i) {
    address = Gid::from_ipv4(kFirstLoopback + i);
    UniqueFd fd = open_udp_socket(address, kRoceUdpPort, PortUse::kReceive);
    if (fd && guard_sender_port(host_sender_port(address))) return fd;
    if (errno != EADDRINUSE) return bind_error(address, errno);
  }
  return {Code::kAlreadyExists,
          fmt::format("softroce finds no address from 127.0.0.1 to {} whose UDP port {} is free; is the kernel's "
                      "rdma_rxe loaded, which has the port at all addresses?",
                      to_string(address), kRoceUdpPort)};
}

void set_receive_buffer(int fd, std::size_t bytes) noexcept { set(fd, SOL_SOCKET, SO_RCVBUF, static_cast<int>(bytes)); }

std::size_t receive_buffer_bytes(int fd) noexcept {
  int bytes = 0;
  socklen_t size = sizeof(bytes);
  ::getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, &size);
  return bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
}

}  // namespace fairlead::soft
