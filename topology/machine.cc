#include "topology/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/index_list.h"

namespace fairlead::topology {

std::string name_of(const Package& package) {
  return fmt::format("socket{} {}", package.sockets.size() == 1 ? "" : "s", to_index_list(package.sockets));
}

std::string name_of(const Memory& memory) { return fmt::format("numa{}", memory.os_index); }

std::vector<std::size_t> packages_of(const Machine& machine, const std::vector<std::size_t>& cores) {
  std::set<std::size_t> packages;
  for (const std::size_t core : cores) packages.insert(machine.cores[core].package);
  return {packages.begin(), packages.end()};
}

bool locality_is_known(const Machine& machine, const Device& device) {
  return machine.packages.size() == 1 || packages_of(machine, device.cores).size() == 1;
}

std::size_t count_of(const Machine& machine, DeviceKind kind) {
  return static_cast<std::size_t>(std::count_if(machine.devices.begin(), machine.devices.end(),
                                                [kind](const Device& device) { return device.kind == kind; }));
}

std::string to_gigabytes_per_second(double bytes_per_second) {
  const double value = bytes_per_second / 1e9;
  if (value >= 99.95) return fmt::format("{:.0f} GB/s", value);
  if (value >= 9.995) return fmt::format("{:.1f} GB/s", value);
  if (value >= 0.995) return fmt::format("{:.2f} GB/s", value);
  return fmt::format("{:.3g} GB/s", std::max(value, 0.0));
}

std::string to_binary_size(std::uint64_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  const bool whole = value >= 10 || value == static_cast<double>(static_cast<std::uint64_t>(value));
  return fmt::format("{:.{}f} {}", value, whole ? 0 : 1, kUnits[unit]);
}

}  // namespace fairlead::topology
