#include "topology/bandwidth_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

namespace fairlead::topology {
namespace {

constexpr double kGigabyte = 1e9;

struct PciGeneration {
  double sixteen_lanes;  // GB/s
  std::string_view name;
};
constexpr std::array kPciGenerations = {
    PciGeneration{15.754, "PCIe 3.0 x16"},
    PciGeneration{31.508, "PCIe 4.0 x16"},
    PciGeneration{63.015, "PCIe 5.0 x16"},
    PciGeneration{121.0, "PCIe 6.0 x16"},
};

// Families and models as CPUID has them; kAnyModel for the rest of a family. GB/s of a package.
constexpr unsigned kAnyModel = ~0u;
struct Processor {
  std::string_view vendor;
  unsigned family, model;
  double socket, memory;
  std::string_view name;
};
constexpr std::array kProcessors = {
    Processor{"GenuineIntel", 6, 79, 6, 76.8, "Broadwell"},
    Processor{"GenuineIntel", 6, 85, 10, 128, "Skylake"},
    Processor{"GenuineIntel", 6, 106, 10, 204.8, "Ice Lake"},
    Processor{"GenuineIntel", 6, 143, 22, 307.2, "Sapphire Rapids"},
    Processor{"GenuineIntel", 6, 207, 22, 358.4, "Emerald Rapids"},
    Processor{"GenuineIntel", 6, 173, 40, 614.4, "Granite Rapids"},
    Processor{"GenuineIntel", 6, kAnyModel, 6, 204.8, "an Intel processor"},
    Processor{"AuthenticAMD", 23, kAnyModel, 16, 204.8, "Zen 1 or 2"},
    Processor{"AuthenticAMD", 25, 1, 16, 204.8, "Zen 3"},
    Processor{"AuthenticAMD", 25, kAnyModel, 16, 460.8, "Zen 4"},
    Processor{"AuthenticAMD", 26, kAnyModel, 16, 576, "Zen 5"},
    Processor{"", 0, kAnyModel, 6, 204.8, "a processor that is not known"},
};

struct NicModel {
  std::uint16_t vendor, device;
  double gigabits;
  std::string_view name;
};
constexpr std::array kNics = {
    NicModel{0x15b3, 0x1003, 56, "ConnectX-3"},
    NicModel{0x15b3, 0x1013, 100, "ConnectX-4"},
    NicModel{0x15b3, 0x1015, 25, "ConnectX-4 Lx"},
    NicModel{0x15b3, 0x1017, 100, "ConnectX-5"},
    NicModel{0x15b3, 0x1019, 100, "ConnectX-5 Ex"},
    NicModel{0x15b3, 0x101b, 200, "ConnectX-6"},
    NicModel{0x15b3, 0x101d, 100, "ConnectX-6 Dx"},
    NicModel{0x15b3, 0x101f, 50, "ConnectX-6 Lx"},
    NicModel{0x15b3, 0x1021, 400, "ConnectX-7"},
    NicModel{0x15b3, 0x1023, 800, "ConnectX-8"},
    NicModel{0x15b3, 0xa2d6, 100, "BlueField-2"},
    NicModel{0x15b3, 0xa2dc, 400, "BlueField-3"},
    NicModel{0x1d0f, 0xefa0, 100, "EFA"},
    NicModel{0x1d0f, 0xefa1, 100, "EFA"},
    NicModel{0x1d0f, 0xefa2, 200, "EFA of p5en"},
    NicModel{0x1d0f, 0xefa3, 400, "EFA of p6"},
    NicModel{0x14e4, 0x1639, 1, "BCM5709"},
    NicModel{0x14e4, 0x1750, 100, "BCM57508"},
    NicModel{0x14e4, 0x1760, 400, "BCM57608"},
    NicModel{0x8086, 0x1592, 100, "E810-C"},
    NicModel{0x8086, 0x1572, 10, "X710"},
    NicModel{0x8086, 0x1583, 40, "XL710"},
    NicModel{0x8086, 0x10fb, 10, "82599"},
    NicModel{0x8086, 0x10c9, 1, "82576"},
    NicModel{0x8086, 0x1521, 1, "I350"},
    NicModel{0x8086, 0x24f0, 100, "Omni-Path 100"},
};

Bandwidth advertised(double bytes_per_second) { return {bytes_per_second, Origin::kAdvertised, "the machine"}; }
Bandwidth assumed(double gigabytes, std::string source) {
  return {gigabytes * kGigabyte, Origin::kAssumed, std::move(source)};
}
Bandwidth given(double bytes_per_second) { return {bytes_per_second, Origin::kMeasured, "--bandwidth"}; }

const Processor& processor_of(const Package& package) {
  return *std::find_if(kProcessors.begin(), kProcessors.end(), [&package](const Processor& known) {
    if (known.vendor.empty()) return true;
    return known.vendor == package.vendor && known.family == package.family &&
           (known.model == kAnyModel || known.model == package.model_number);
  });
}

}  // namespace

Result<BandwidthOverrides> parse_bandwidths(std::string_view text) {
  BandwidthOverrides overrides;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    const std::string_view item = text.substr(begin, comma - begin);
    const std::size_t equals = item.find('=');
    double value = 0;
    const std::string_view number = equals == std::string_view::npos ? "" : item.substr(equals + 1);
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    const bool whole = error == std::errc() && end == number.data() + number.size();
    if (!whole || equals == 0 || !(value > 0 && value <= 1e6)) {
      return Status(
          Code::kInvalidArgument,
          fmt::format("'{}' is wrong; legal: NAME=GB/s, such as mlx5_0=12.5, above 0 and at most 1000000", item));
    }
    overrides.emplace_back(item.substr(0, equals), value * kGigabyte);
    begin = comma + 1;
  }
  return overrides;
}

Status BandwidthTable::check(const Machine& machine) const {
  std::set<std::string> links;
  std::set<std::string> names = {"memory", "socket", "pcie", "nic"};
  for (const Memory& memory : machine.memories) names.insert(name_of(memory));
  for (const Bridge& bridge : machine.bridges) {
    if (bridge.parent) links.insert(bridge.bus_id);
  }
  for (const Device& device : machine.devices) {
    if (device.kind == DeviceKind::kNic) names.insert(device.name);
    links.insert(device.bus_id);
  }
  for (const auto& [name, value] : overrides_) {
    if (names.contains(name) || links.contains(name)) continue;
    return Status(Code::kNotFound,
                  fmt::format("the machine has no '{}' whose bandwidth could be set; it has {}, and PCI "
                              "addresses",
                              name, fmt::join(names, ", ")));
  }
  return Status();
}

const double* BandwidthTable::find(std::string_view name) const {
  const auto found = std::find_if(overrides_.rbegin(), overrides_.rend(),
                                  [name](const auto& item) { return !name.empty() && item.first == name; });
  return found == overrides_.rend() ? nullptr : &found->second;
}

Bandwidth BandwidthTable::memory(const Machine& machine, std::size_t memory) const {
  const Memory& node = machine.memories[memory];
  if (const double* set = find(name_of(node)); set != nullptr) return given(*set);
  if (const double* set = find("memory"); set != nullptr) return given(*set);
  if (node.bandwidth > 0) return advertised(node.bandwidth);
  // Memory beyond the packages' own (CXL, a GPU's) is like that of one package.
  const std::vector<std::size_t> packages = packages_of(machine, node.cores);
  const Processor& processor = processor_of(machine.packages[packages.empty() ? 0 : packages.front()]);
  const auto sharing = std::count_if(machine.memories.begin(), machine.memories.end(), [&](const Memory& other) {
    return !packages.empty() && packages_of(machine, other.cores) == packages;
  });
  const double share =
      std::max(1.0, static_cast<double>(packages.size())) / std::max(1.0, static_cast<double>(sharing));
  return assumed(processor.memory * share, fmt::format("memory of {}", processor.name));
}

Bandwidth BandwidthTable::socket(const Machine& machine, std::size_t package) const {
  if (const double* set = find("socket"); set != nullptr) return given(*set);
  const Processor& processor = processor_of(machine.packages[package]);
  return assumed(processor.socket, fmt::format("between sockets of {}", processor.name));
}

Bandwidth BandwidthTable::nic(const Device& device) const {
  if (const double* set = find(device.name); set != nullptr) return given(*set);
  if (device.rate > 0) return advertised(device.rate);
  if (const double* set = find("nic"); set != nullptr) return given(*set);
  const auto known = std::find_if(kNics.begin(), kNics.end(), [&device](const NicModel& nic) {
    return nic.vendor == device.vendor && nic.device == device.device;
  });
  if (known != kNics.end()) return assumed(known->gigabits / 8, std::string(known->name));
  const bool rdma = !device.rdma_devices.empty() || device.pci_class == 0x0207 || device.pci_class == 0x0208;
  return rdma ? assumed(12.5, "a NIC with RDMA") : assumed(1.25, "an Ethernet NIC");
}

Bandwidth BandwidthTable::link(const Device& device) const {
  if (device.kind != DeviceKind::kNic || device.name != device.bus_id) {
    if (const double* set = find(device.bus_id); set != nullptr) return given(*set);
  }
  if (device.link > 0) return advertised(device.link);
  if (const double* set = find("pcie"); set != nullptr) return given(*set);
  const double needed = device.kind == DeviceKind::kNic ? nic(device).bytes_per_second / kGigabyte : 0;
  for (const PciGeneration& generation : kPciGenerations) {
    if (generation.sixteen_lanes >= needed) return assumed(generation.sixteen_lanes, std::string(generation.name));
  }
  return assumed(needed, "as wide as its ports");
}

Bandwidth BandwidthTable::link(const Bridge& bridge, const Bandwidth& widest_below) const {
  if (const double* set = find(bridge.bus_id); set != nullptr) return given(*set);
  if (bridge.link > 0) return advertised(bridge.link);
  if (const double* set = find("pcie"); set != nullptr) return given(*set);
  if (widest_below.bytes_per_second > 0) {
    return assumed(widest_below.bytes_per_second / kGigabyte, "as wide as the widest link below it");
  }
  return assumed(kPciGenerations.front().sixteen_lanes, std::string(kPciGenerations.front().name));
}

}  // namespace fairlead::topology
