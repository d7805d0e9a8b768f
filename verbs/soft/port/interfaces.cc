#include "verbs/soft/port/interfaces.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <unistd.h>

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

/// What the system says of an interface that is up; index 0: there is none.
InterfaceAddress up_interface(std::uint32_t index) {
  ifreq request{};
  const UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (index == 0 || !fd || ::if_indextoname(index, request.ifr_name) == nullptr) return {};
  if (::ioctl(fd.get(), SIOCGIFFLAGS, &request) != 0 || (request.ifr_flags & IFF_UP) == 0) return {};
  const bool loopback = (request.ifr_flags & IFF_LOOPBACK) != 0;
  return {{}, request.ifr_name, index, interface_mtu(index), loopback};
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

std::vector<InterfaceAddress> host_addresses() {
  std::vector<InterfaceAddress> found;
  std::map<std::uint32_t, InterfaceAddress> interfaces;
  for (const HostAddress& address : list_host_addresses()) {
    const auto [known, is_new] = interfaces.try_emplace(address.interface);
    if (is_new) known->second = up_interface(address.interface);
    if (known->second.index == 0) continue;
    found.push_back(known->second);
    found.back().gid.bytes = address.bytes;
  }
  return found;
}

std::uint32_t interface_mtu(std::uint32_t index) noexcept {
  ifreq request{};
  if (index == 0 || ::if_indextoname(index, request.ifr_name) == nullptr) return 0;
  const UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd || ::ioctl(fd.get(), SIOCGIFMTU, &request) != 0) return 0;
  return static_cast<std::uint32_t>(request.ifr_mtu);
}

InterfaceAddress interface_of(const Gid& gid) {
  const bool loopback = gid.is_ipv4() && gid.is_loopback();
  if (loopback) {  // most devices of one host: without the list
    InterfaceAddress found = up_interface(::if_nametoindex(kLoopback));
    found.gid = gid;
    if (found.index != 0) return found;
  }
  for (InterfaceAddress& address : host_addresses()) {
    if (address.gid == gid || (loopback && address.loopback && address.gid.is_ipv4())) {
      address.gid = gid;
      return std::move(address);
    }
  }
  return {gid, "", 0, 0, loopback};
}

bool is_of_host(const Gid& gid) {
  if (gid.is_loopback()) return true;
  // Who goes to an address of its own host comes from there, but for further ones of the same network.
  const UniqueFd fd(::socket(gid.is_ipv4() ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const SocketAddress to(gid, kRoceUdpPort);
  SocketAddress from;
  socklen_t size = sizeof(sockaddr_in6);
  if (fd && ::connect(fd.get(), to.get(), to.size()) == 0 && ::getsockname(fd.get(), from.get(), &size) == 0 &&
      from.gid() == gid) {
    return true;
  }
  return interface_of(gid).index != 0;
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
