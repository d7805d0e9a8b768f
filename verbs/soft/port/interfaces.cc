#include "verbs/soft/port/interfaces.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "base/system/host_addresses.h"
#include "base/unique_fd.h"
#include "verbs/soft/port/udp/udp_socket.h"
#include "verbs/soft/wire/headers.h"

namespace fairlead::soft {
namespace {

// IPv4 20, UDP 8, BTH 12, RETH 16, immediate 4, ICRC 4.
constexpr std::uint32_t kHeaderBytes = 64;
constexpr std::uint32_t kMoreInIpv6 = 20;

// An address as the kernel's tables print it: words of the machine's byte order.
std::string table_text(const Gid& gid, std::uint16_t port) {
  std::string text;
  for (std::size_t i = gid.is_ipv4() ? 12 : 0; i < gid.bytes.size(); i += 4) {
    std::uint32_t word = 0;
    std::memcpy(&word, gid.bytes.data() + i, sizeof(word));
    text += fmt::format("{:08X}", word);
  }
  return fmt::format("{}:{:04X}", text, port);
}

constexpr const char* kLoopback = "lo";

/// Any socket can be asked about interfaces.
UniqueFd asking_socket() noexcept { return UniqueFd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)); }

/// An interface by its index, as ioctl() takes it; nothing where there is none.
std::optional<ifreq> request_about(int socket, std::uint32_t index) noexcept {
  ifreq request{};
  request.ifr_ifindex = static_cast<int>(index);
  if (index == 0 || ::ioctl(socket, SIOCGIFNAME, &request) != 0) return std::nullopt;
  return request;
}

std::uint32_t mtu_of(int socket, ifreq request) noexcept {
  return ::ioctl(socket, SIOCGIFMTU, &request) == 0 ? static_cast<std::uint32_t>(request.ifr_mtu) : 0;
}

/// What the system says of an interface that is up; index 0: there is none. Needs no further descriptor: what was left
/// out for want of one would look gone.
InterfaceAddress up_interface(int socket, std::uint32_t index) {
  auto request = request_about(socket, index);
  if (!request || ::ioctl(socket, SIOCGIFFLAGS, &*request) != 0 || (request->ifr_flags & IFF_UP) == 0) return {};
  const bool loopback = (request->ifr_flags & IFF_LOOPBACK) != 0;
  return {{}, request->ifr_name, index, mtu_of(socket, *request), loopback};
}

// Who goes to an address of its own host comes from there, but for further ones of the same network.
bool comes_from_itself(const Gid& gid) noexcept {
  const UniqueFd fd(::socket(gid.is_ipv4() ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const SocketAddress to(gid, kRoceUdpPort);
  SocketAddress from;
  socklen_t size = sizeof(sockaddr_in6);
  return fd && ::connect(fd.get(), to.get(), to.size()) == 0 && ::getsockname(fd.get(), from.get(), &size) == 0 &&
         from.gid() == gid;
}

struct SocketEntry {
  std::string user;
  std::string inode;
};

// The sockets bound to the port, from the kernel's table: "sl local_address rem_address st ... uid timeout inode".
std::vector<SocketEntry> sockets_bound_to(const Gid& gid, std::uint16_t port) {
  const std::string exact = table_text(gid, port);
  const std::string any = table_text(gid.is_ipv4() ? Gid::from_ipv4(0) : Gid(), port);
  std::vector<SocketEntry> sockets;
  std::ifstream table(gid.is_ipv4() ? "/proc/net/udp" : "/proc/net/udp6");
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::string word;
    std::string local;
    words >> word >> local;
    if (local != exact && local != any) continue;
    SocketEntry socket;
    for (int column = 2; column < 7; ++column) words >> word;
    words >> socket.user >> word >> socket.inode;
    sockets.push_back(std::move(socket));
  }
  return sockets;
}

}  // namespace

std::optional<std::vector<InterfaceAddress>> host_addresses() {
  const UniqueFd socket = asking_socket();
  if (!socket) return std::nullopt;
  const auto addresses = list_host_addresses();
  if (!addresses) return std::nullopt;
  std::vector<InterfaceAddress> found;
  std::map<std::uint32_t, InterfaceAddress> interfaces;
  for (const HostAddress& address : *addresses) {
    const auto [known, is_new] = interfaces.try_emplace(address.interface);
    if (is_new) known->second = up_interface(socket.get(), address.interface);
    if (known->second.index == 0) continue;
    found.push_back(known->second);
    found.back().gid.bytes = address.bytes;
  }
  return found;
}

std::uint32_t interface_mtu(std::uint32_t index) noexcept {
  const UniqueFd socket = asking_socket();
  const auto request = request_about(socket.get(), index);
  return request ? mtu_of(socket.get(), *request) : 0;
}

std::optional<InterfaceAddress> find_interface(const Gid& gid) {
  const bool loopback = gid.is_ipv4() && gid.is_loopback();
  if (loopback) {  // most devices of one host: without the list
    const std::uint32_t index = ::if_nametoindex(kLoopback);
    InterfaceAddress found = up_interface(asking_socket().get(), index);
    found.gid = gid;
    if (found.index != 0) return found;
  }
  auto all = host_addresses();
  if (!all) return std::nullopt;
  for (InterfaceAddress& address : *all) {
    if (address.gid == gid || (loopback && address.loopback && address.gid.is_ipv4())) {
      address.gid = gid;
      return std::move(address);
    }
  }
  return InterfaceAddress{gid, "", 0, 0, loopback};
}

InterfaceAddress interface_of(const Gid& gid) {
  return find_interface(gid).value_or(InterfaceAddress{gid, "", 0, 0, gid.is_ipv4() && gid.is_loopback()});
}

std::optional<bool> is_of_host(const Gid& gid) {
  if (gid.is_loopback() || comes_from_itself(gid)) return true;
  const auto all = host_addresses();
  if (!all) return std::nullopt;
  return std::ranges::find(*all, gid, &InterfaceAddress::gid) != all->end();
}

std::string cannot_tell_host(const Gid& gid, int error) {
  return fmt::format(
      "softroce cannot tell whether {} is an address of this host: {}; raise `ulimit -n`, or allow sockets of "
      "AF_NETLINK",
      to_string(gid), std::strerror(error));
}

std::uint64_t stable_hash(const Gid& gid) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const std::uint8_t byte : gid.bytes) hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

std::uint32_t largest_path_mtu(std::uint32_t interface_mtu, bool ipv6) noexcept {
  for (std::uint32_t mtu = 4096; mtu >= 256; mtu /= 2) {
    if (mtu + kHeaderBytes + (ipv6 ? kMoreInIpv6 : 0) <= interface_mtu) return mtu;
  }
  return 0;
}

std::string udp_port_holder(const Gid& gid, std::uint16_t port) {
  namespace fs = std::filesystem;
  const auto sockets = sockets_bound_to(gid, port);
  std::error_code ignored;
  for (const auto& process : fs::directory_iterator("/proc", ignored)) {
    const std::string pid = process.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code unreadable;
    for (fs::directory_iterator fd(process.path() / "fd", unreadable), end; fd != end; fd.increment(unreadable)) {
      const std::string target = fs::read_symlink(fd->path(), unreadable);
      for (const SocketEntry& socket : sockets) {
        if (target != "socket:[" + socket.inode + "]") continue;
        std::string name;
        std::getline(std::ifstream(process.path() / "comm"), name);
        return fmt::format("process {} ({}) of uid {}", pid, name, socket.user);
      }
      if (unreadable) break;
    }
  }
  // The kernel's own sockets have no inode.
  if (sockets.empty() || sockets.front().inode == "0") return "";
  return fmt::format("a process of uid {}", sockets.front().user);
}

}  // namespace fairlead::soft
