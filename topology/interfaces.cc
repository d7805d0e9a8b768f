#include "topology/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <numeric>
#include <system_error>
#include <utility>

#include "topology/this_machine.h"

namespace fairlead::topology {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLower = "lower_";
constexpr int kMostFloors = 4;  // a VLAN on a bond on a NIC is three

void add_below(const Machine& machine, const std::string& root, const std::string& interface, int floors,
               std::set<std::size_t>& nics) {
  const std::vector<std::size_t> own = nics_named(machine, &Device::net_devices, interface);
  nics.insert(own.begin(), own.end());
  if (!own.empty()) return;
  std::error_code unread;
  for (const auto& entry : fs::directory_iterator(root + "/sys/class/net/" + interface, unread)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kLower) || floors == 0) continue;
    add_below(machine, root, name.substr(kLower.size()), floors - 1, nics);
  }
}

std::size_t add_interface(Machine* machine, const std::string& interface) {
  Device device{.kind = DeviceKind::kNic, .name = interface, .net_devices = {interface}, .model = "not on PCI"};
  device.cores.resize(machine->cores.size());
  std::iota(device.cores.begin(), device.cores.end(), std::size_t{0});
  machine->devices.push_back(std::move(device));
  return machine->devices.size() - 1;
}

}  // namespace

std::vector<LocalAddress> local_addresses() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> all(first, &::freeifaddrs);
  std::vector<LocalAddress> found;
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0 || (each->ifa_flags & IFF_LOOPBACK) != 0) continue;
    std::array<char, INET6_ADDRSTRLEN> text{};
    const int family = each->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const void* const binary =
        family == AF_INET
            ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr)     // NOLINT
            : static_cast<const void*>(&reinterpret_cast<const sockaddr_in6*>(each->ifa_addr)->sin6_addr);  // NOLINT
    found.push_back({::inet_ntop(family, binary, text.data(), text.size()), each->ifa_name});
  }
  return found;
}

std::vector<std::size_t> nics_named(const Machine& machine, std::vector<std::string> Device::* names,
                                    std::string_view name) {
  for (std::size_t i = 0; i < machine.devices.size(); ++i) {
    const Device& device = machine.devices[i];
    if (device.kind == DeviceKind::kNic && std::ranges::count(device.*names, name) != 0) return {i};
  }
  return {};
}

std::vector<std::size_t> nics_behind(const std::set<std::string>& interfaces, Unknown unknown, const std::string& root,
                                     Machine* machine) {
  std::set<std::size_t> nics;
  std::set<std::string> on_none;
  for (const std::string& interface : interfaces) {
    std::set<std::size_t> below;
    add_below(*machine, root, interface, kMostFloors, below);
    if (below.empty()) on_none.insert(interface);
    nics.merge(below);
  }
  if (unknown == Unknown::kAddWhereNoNicIs && !nics.empty()) on_none.clear();
  for (const std::string& interface : on_none) nics.insert(add_interface(machine, interface));
  if (!on_none.empty()) read_nic_rates(root, machine);
  return {nics.begin(), nics.end()};
}

}  // namespace fairlead::topology
