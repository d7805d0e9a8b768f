#include "verbs/cm/address.h"

#include <netinet/in.h>

#include <cstring>

#include "base/system/no_cancellation.h"
#include "base/unique_fd.h"

namespace fairlead::cm {
namespace {

constexpr std::uint16_t kAnyPort = 9;  // nothing is sent there

bool is_any(const Gid& address) noexcept {
  return address.is_null() || (address.is_ipv4() && address.ipv4() == INADDR_ANY);
}

UniqueFd udp_socket(const Gid& like) noexcept {
  return UniqueFd(::socket(like.is_ipv4() ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
}

}  // namespace

std::optional<IpEndpoint> from_sockaddr(const sockaddr& address) noexcept {
  IpEndpoint endpoint;
  if (address.sa_family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, &address, sizeof(in));
    endpoint = {Gid::from_ipv4(ntohl(in.sin_addr.s_addr)), ntohs(in.sin_port)};
  } else if (address.sa_family == AF_INET6) {
    sockaddr_in6 in6;
    std::memcpy(&in6, &address, sizeof(in6));
    std::memcpy(endpoint.address.bytes.data(), &in6.sin6_addr, sizeof(in6.sin6_addr));
    endpoint.port = ntohs(in6.sin6_port);
  } else {
    return std::nullopt;
  }
  if (is_any(endpoint.address)) endpoint.address = Gid{};
  return endpoint;
}

void to_sockaddr(const IpEndpoint& endpoint, bool ipv6, sockaddr_storage& to) noexcept {
  to = {};
  if (ipv6 || !(endpoint.address.is_ipv4() || endpoint.address.is_null())) {
    sockaddr_in6 in6{};
    in6.sin6_family = AF_INET6;
    in6.sin6_port = htons(endpoint.port);
    std::memcpy(&in6.sin6_addr, endpoint.address.bytes.data(), sizeof(in6.sin6_addr));
    std::memcpy(&to, &in6, sizeof(in6));
  } else {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(endpoint.port);
    in.sin_addr.s_addr = htonl(endpoint.address.ipv4());
    std::memcpy(&to, &in, sizeof(in));
  }
}

socklen_t length_of(const sockaddr& address) noexcept {
  return address.sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

bool is_loopback(const Gid& address) noexcept {
  if (address.is_ipv4()) return address.ipv4() >> 24 == IN_LOOPBACKNET;
  Gid one;
  one.bytes[15] = 1;
  return address == one;
}

bool is_local(const Gid& address) noexcept {
  if (is_loopback(address)) return true;
  const UniqueFd socket = udp_socket(address);
  sockaddr_storage to;
  to_sockaddr({address, 0}, false, to);
  const auto* raw = reinterpret_cast<const sockaddr*>(&to);
  return socket && ::bind(socket.get(), raw, length_of(*raw)) == 0;
}

std::optional<Gid> source_toward(const Gid& destination) noexcept {
  const NoCancellation whole;
  const UniqueFd socket = udp_socket(destination);
  sockaddr_storage to;
  to_sockaddr({destination, kAnyPort}, false, to);
  const auto* raw = reinterpret_cast<const sockaddr*>(&to);
  sockaddr_storage own{};
  socklen_t length = sizeof(own);
  if (!socket || ::connect(socket.get(), raw, length_of(*raw)) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &length) != 0) {
    return std::nullopt;
  }
  const auto endpoint = from_sockaddr(*reinterpret_cast<const sockaddr*>(&own));
  return endpoint ? std::optional(endpoint->address) : std::nullopt;
}

}  // namespace fairlead::cm
