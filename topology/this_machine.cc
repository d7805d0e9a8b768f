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

// Of a NIC's ports together.
struct Ports {
  double rate_up = 0, rate_down = 0;
  bool any_up = false, any_down = false;  // of those that say so, and those that have a rate and do not

  // `is_up`: nullopt where nobody says. A port that is down may have no rate.
  void add(double rate, std::optional<bool> is_up) {
    const bool up = is_up.value_or(true);
    (up ? rate_up : rate_down) += rate;
    any_up = any_up || (up && (is_up || rate > 0));
    any_down = any_down || !up;
  }
  [[nodiscard]] bool are_down() const noexcept { return any_down && !any_up; }
};

void add_rdma_ports(const fs::path& device, Ports* ports) {
  std::error_code unread;
  for (const auto& port : fs::directory_iterator(device / "ports", unread)) {
    const double rate = leading_number(read_line(port.path() / "rate").value_or("")) * 1e9 / 8;
    const std::optional<std::string> state = read_line(port.path() / "state");
    ports->add(rate, state ? std::optional(state->find("ACTIVE") != std::string::npos) : std::nullopt);
  }
}

// Without a link the kernel gives no speed, or -1, so that operstate alone tells.
void add_interface(const fs::path& folder, Ports* ports) {
  const double rate = leading_number(read_line(folder / "speed").value_or("")) * 1e6 / 8;
  const std::optional<std::string> state = read_line(folder / "operstate");
  ports->add(rate, state ? std::optional(*state != "down" && *state != "lowerlayerdown") : std::nullopt);
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
    Ports ports;
    for (const std::string& name : device.rdma_devices) {
      add_rdma_ports(fs::path(root + "/sys/class/infiniband") / name, &ports);
    }
    // One port has both faces: what the RDMA face says is not said again by the other.
    for (const std::string& name : device.net_devices) {
      if (device.rdma_devices.empty()) add_interface(fs::path(root + "/sys/class/net") / name, &ports);
    }
    device.rate_is_down = ports.are_down();
    const double rate = device.rate_is_down ? ports.rate_down : ports.rate_up;
    if (rate > 0) device.rate = rate;
  }
}

void read_cpu_quota(const std::string& root, Machine* machine) { machine->cpu_quota = cpu_quota(SystemFiles(root)); }

}  // namespace fairlead::topology
