#include "verbs/discovery/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/system/host_addresses.h"
#include "base/unique_fd.h"

namespace fairlead::verbs {
namespace {

constexpr std::array<std::uint8_t, 12> kMappedPrefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

Address from_sockaddr(const sockaddr* socket_address) noexcept {
  Address address;
  if (socket_address->sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, socket_address, sizeof v4);
    std::copy(kMappedPrefix.begin(), kMappedPrefix.end(), address.bytes.begin());
    std::memcpy(address.bytes.data() + 12, &v4.sin_addr, 4);
  } else if (socket_address->sa_family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, socket_address, sizeof v6);
    std::memcpy(address.bytes.data(), &v6.sin6_addr, 16);
  }
  return address;
}

/// The interface that a link-local address is said to be of; 0: it is not said.
std::uint32_t scope_of(const sockaddr* socket_address) noexcept {
  if (socket_address->sa_family != AF_INET6) return 0;
  sockaddr_in6 v6{};
  std::memcpy(&v6, socket_address, sizeof v6);
  return v6.sin6_scope_id;
}

using AddrInfo = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Result<AddrInfo> resolve_numeric(std::string_view text) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  // The port is never used; connect() of a datagram socket only needs one that is not 0.
  const int error = ::getaddrinfo(std::string(text).c_str(), "4791", &hints, &found);
  if (error != 0) {
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}' is not a numeric IP address: {}", text, ::gai_strerror(error)));
  }
  return AddrInfo(found, &::freeaddrinfo);
}

std::uint32_t interface_of(const Address& address) {
  const auto all = list_host_addresses();
  if (!all) return 0;  // unknown
  for (const HostAddress& each : *all) {
    if (each.bytes == address.bytes) return each.interface;
  }
  return 0;
}

// The address that the kernel would send from, and what it would send at most: connecting a datagram socket looks the
// route up and sends nothing.
Status look_up(const addrinfo& peer, std::string_view text, Route& route) {
  const UniqueFd fd(::socket(peer.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage source{};
  socklen_t length = sizeof source;
  if (!fd || ::connect(fd.get(), peer.ai_addr, peer.ai_addrlen) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&source), &length) != 0) {
    return {Code::kUnavailable, fmt::format("no route to {}: {}", text, std::strerror(errno))};
  }
  route.source = from_sockaddr(reinterpret_cast<const sockaddr*>(&source));
  route.interface = scope_of(reinterpret_cast<const sockaddr*>(&source));
  int mtu = 0;
  length = sizeof mtu;
  const bool v6 = peer.ai_family == AF_INET6;
  const int known = v6 ? ::getsockopt(fd.get(), IPPROTO_IPV6, IPV6_MTU, &mtu, &length)
                       : ::getsockopt(fd.get(), IPPROTO_IP, IP_MTU, &mtu, &length);
  if (known == 0 && mtu > 0) route.mtu = static_cast<std::uint32_t>(mtu);
  return {};
}

}  // namespace

bool Address::is_ipv4() const noexcept { return std::equal(kMappedPrefix.begin(), kMappedPrefix.end(), bytes.begin()); }

bool Address::is_loopback() const noexcept {
  if (is_ipv4()) return bytes[12] == 127;
  return bytes[15] == 1 && std::all_of(bytes.begin(), bytes.end() - 1, [](std::uint8_t byte) { return byte == 0; });
}

bool Address::is_link_local() const noexcept { return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80; }

std::string Address::to_string() const {
  char text[INET6_ADDRSTRLEN] = "?";
  if (is_ipv4()) {
    ::inet_ntop(AF_INET, bytes.data() + 12, text, sizeof text);
  } else {
    ::inet_ntop(AF_INET6, bytes.data(), text, sizeof text);
  }
  return text;
}

Address address_of(const ibv_gid& gid) noexcept {
  Address address;
  std::memcpy(address.bytes.data(), gid.raw, sizeof gid.raw);
  return address;
}

ibv_gid gid_of(const Address& address) noexcept {
  ibv_gid gid{};
  std::memcpy(gid.raw, address.bytes.data(), sizeof gid.raw);
  return gid;
}

Result<Address> parse_address(std::string_view text) {
  auto resolved = resolve_numeric(text);
  if (!resolved) return resolved.error();
  return from_sockaddr((*resolved)->ai_addr);
}

Result<Route> route_to(std::string_view peer, std::string_view local) {
  auto resolved = resolve_numeric(peer);
  if (!resolved) return resolved.error();
  Route route;
  route.peer = from_sockaddr((*resolved)->ai_addr);
  const Status found = look_up(**resolved, peer, route);
  if (local.empty()) {
    if (!found.ok()) return found;
  } else {
    auto source = resolve_numeric(local);
    if (!source) return source.error();
    route.source = from_sockaddr((*source)->ai_addr);
    route.interface = scope_of((*source)->ai_addr);
  }
  // Several interfaces may have the same link-local address (RFC 4007); any other is looked up.
  if (route.interface == 0 && route.source.is_link_local()) route.interface = scope_of((*resolved)->ai_addr);
  if (route.interface == 0) route.interface = interface_of(route.source);
  return route;
}

}  // namespace fairlead::verbs
