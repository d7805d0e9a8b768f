#include "datapath/placement/used_nics.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "topology/this_machine.h"

namespace fairlead::datapath {
namespace {

namespace fs = std::filesystem;
using topology::Device;
using topology::DeviceKind;
using topology::Machine;

constexpr std::string_view kVerbsPrefix = "verbs:", kLower = "lower_";
constexpr int kMostFloors = 4;  // a VLAN on a bond on a NIC is three

std::optional<std::size_t> nic_with(const Machine& machine, std::vector<std::string> Device::* names,
                                    std::string_view name) {
  for (std::size_t i = 0; i < machine.devices.size(); ++i) {
    const Device& device = machine.devices[i];
    if (device.kind == DeviceKind::kNic && std::ranges::count(device.*names, name) != 0) return i;
  }
  return std::nullopt;
}

/// The NICs below an interface; none where there is none that the machine knows.
void add_below(const Machine& machine, const std::string& root, const std::string& interface, int floors,
               std::set<std::size_t>& nics) {
  if (const auto nic = nic_with(machine, &Device::net_devices, interface)) {
    nics.insert(*nic);
    return;
  }
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

/// One spelling for an address, whatever its own.
std::string canonical(const std::string& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  in6_addr six{};
  in_addr four{};
  if (::inet_pton(AF_INET, address.c_str(), &four) == 1) return address;
  if (::inet_pton(AF_INET6, address.c_str(), &six) != 1) return address;
  return ::inet_ntop(AF_INET6, &six, text.data(), text.size());
}

}  // namespace

bool is_address(const std::string& text) noexcept {
  in6_addr six{};
  in_addr four{};
  return ::inet_pton(AF_INET, text.c_str(), &four) == 1 || ::inet_pton(AF_INET6, text.c_str(), &six) == 1;
}

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

std::vector<std::vector<std::size_t>> nics_of(const std::vector<UsedTransport>& transports,
                                              const std::vector<LocalAddress>& addresses, const std::string& root,
                                              Machine* machine) {
  const std::size_t known = machine->devices.size();
  std::vector<std::vector<std::size_t>> all;
  for (const UsedTransport& transport : transports) {
    std::set<std::size_t> nics;
    const bool verbs = transport.name.starts_with(kVerbsPrefix);
    const auto nic =
        verbs ? nic_with(*machine, &Device::rdma_devices, transport.name.substr(kVerbsPrefix.size())) : std::nullopt;
    if (nic) nics.insert(*nic);
    std::set<std::string> unknown;
    for (const LocalAddress& local : addresses) {
      const bool carries = transport.everywhere || std::ranges::any_of(transport.addresses, [&](const auto& address) {
                             return canonical(address) == local.address;
                           });
      if (nic || !carries) continue;
      std::set<std::size_t> below;
      add_below(*machine, root, local.interface, kMostFloors, below);
      if (below.empty()) unknown.insert(local.interface);
      nics.merge(below);
    }
    // Beside NICs, bridges of containers and the like lead to no other host.
    if (transport.everywhere && !nics.empty()) unknown.clear();
    for (const std::string& interface : unknown) nics.insert(add_interface(machine, interface));
    all.emplace_back(nics.begin(), nics.end());
  }
  if (machine->devices.size() != known) topology::read_nic_rates(root, machine);
  return all;
}

}  // namespace fairlead::datapath
