#include "bench/net/interface.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstring>
#include <memory>

#include "base/unique_fd.h"

namespace fairlead::bench {
namespace {

struct Address {
  int family = AF_UNSPEC;
  in6_addr bytes{};  // of IPv4 the first four
  [[nodiscard]] bool operator==(const Address& other) const noexcept {
    return family == other.family && std::memcmp(&bytes, &other.bytes, sizeof(bytes)) == 0;
  }
};

Address parse(const std::string& text) {
  Address address;
  in6_addr six{};
  if (::inet_pton(AF_INET, text.c_str(), &address.bytes) == 1) {
    address.family = AF_INET;
  } else if (::inet_pton(AF_INET6, text.c_str(), &six) == 1) {
    if (IN6_IS_ADDR_V4MAPPED(&six)) {
      address.family = AF_INET;
      std::memcpy(&address.bytes, six.s6_addr + 12, 4);
    } else {
      address.family = AF_INET6;
      address.bytes = six;
    }
  }
  return address;
}

Address of(const sockaddr& socket_address) {
  Address address;
  if (socket_address.sa_family == AF_INET) {
    address.family = AF_INET;
    std::memcpy(&address.bytes, &reinterpret_cast<const sockaddr_in&>(socket_address).sin_addr, sizeof(in_addr));
  } else if (socket_address.sa_family == AF_INET6) {
    address.family = AF_INET6;
    address.bytes = reinterpret_cast<const sockaddr_in6&>(socket_address).sin6_addr;
  }
  return address;
}

// All of 127.0.0.0/8 is loopback's, though it names one.
bool is_loopback(const Address& address) { return address.family == AF_INET && address.bytes.s6_addr[0] == 127; }

InterfaceFacts facts_of(const std::string& name) {
  InterfaceFacts facts{.name = name, .mtu = 0, .megabits = std::nullopt};
  const UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  name.copy(request.ifr_name, sizeof(request.ifr_name) - 1);
  if (!fd) return facts;
  if (::ioctl(fd.get(), SIOCGIFMTU, &request) == 0) facts.mtu = static_cast<std::uint32_t>(request.ifr_mtu);
  ethtool_cmd command{};
  command.cmd = ETHTOOL_GSET;
  request.ifr_data = reinterpret_cast<char*>(&command);
  if (::ioctl(fd.get(), SIOCETHTOOL, &request) == 0) {
    const std::uint32_t speed = ethtool_cmd_speed(&command);
    if (speed != 0 && speed != static_cast<std::uint32_t>(SPEED_UNKNOWN)) facts.megabits = speed;
  }
  return facts;
}

}  // namespace

std::optional<InterfaceFacts> interface_with(std::string_view text) {
  const Address wanted = parse(std::string(text.substr(0, text.find('%'))));
  ifaddrs* first = nullptr;
  if (wanted.family == AF_UNSPEC || ::getifaddrs(&first) != 0) return std::nullopt;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> all(first, &::freeifaddrs);
  for (const ifaddrs* each = all.get(); each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr) continue;
    const Address address = of(*each->ifa_addr);
    const bool both_loopback = is_loopback(wanted) && is_loopback(address);
    if (address == wanted || both_loopback) return facts_of(each->ifa_name);
  }
  return std::nullopt;
}

}  // namespace fairlead::bench
