#include "topology/this_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>

#include "base/index_list.h"
#include "base/system/cgroup.h"
#include "base/system/system_files.h"

namespace fairlead::topology {
namespace {

namespace fs = std::filesystem;

// The first line; nullopt where it cannot be read, which of sysfs is common: a link that is down refuses its speed.
std::optional<std::string> read_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

// The number that `text` begins with; 0 where there is none, or it is no rate or quota ("-1", "max").
double leading_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && value > 0 && value < 1e12 ? value : 0;
}

struct Rates {
  double up = 0, down = 0;
};

Rates rdma_rates(const fs::path& device) {
  Rates sum;
  std::error_code unread;
  for (const auto& port : fs::directory_iterator(device / "ports", unread)) {
    const double rate = leading_number(read_line(port.path() / "rate").value_or("")) * 1e9 / 8;
    const bool active = read_line(port.path() / "state").value_or("4: ACTIVE").find("ACTIVE") != std::string::npos;
    (active ? sum.up : sum.down) += rate;
  }
  return sum;
}

}  // namespace

void read_isolated_cores(const std::string& root, Machine* machine) {
  const std::optional<std::string> line = read_line(root + "/sys/devices/system/cpu/isolated");
  if (!line) return;
  const Result<std::vector<unsigned>> isolated = parse_index_list(*line);
  if (!isolated) {
    machine->remarks.push_back(
        fmt::format("/sys/devices/system/cpu/isolated is not understood: {}.", isolated.error().message()));
    return;
  }
  for (Core& core : machine->cores) {
    core.isolated = std::any_of(core.pus.begin(), core.pus.end(), [&](unsigned pu) {
      return std::binary_search(isolated->begin(), isolated->end(), pu);
    });
  }
}

void read_nic_rates(const std::string& root, Machine* machine) {
  for (Device& device : machine->devices) {
    if (device.kind != DeviceKind::kNic) continue;
    Rates sum;
    for (const std::string& name : device.rdma_devices) {
      const Rates ports = rdma_rates(fs::path(root + "/sys/class/infiniband") / name);
      sum.up += ports.up;
      sum.down += ports.down;
    }
    // One port has both faces: what the RDMA face says is not said again by the other.
    for (const std::string& name : device.net_devices) {
      if (sum.up > 0 || !device.rdma_devices.empty()) break;
      const fs::path folder = fs::path(root + "/sys/class/net") / name;
      const double rate = leading_number(read_line(folder / "speed").value_or("")) * 1e6 / 8;
      (read_line(folder / "operstate").value_or("up") == "down" ? sum.down : sum.up) += rate;
    }
    device.rate_is_down = sum.up <= 0 && sum.down > 0;
    const double rate = device.rate_is_down ? sum.down : sum.up;
    if (rate > 0) device.rate = rate;
  }
}

void read_cpu_quota(const std::string& root, Machine* machine) { machine->cpu_quota = cpu_quota(SystemFiles(root)); }

}  // namespace fairlead::topology
