// The machine that is examined: its files, the devices in them that checks ask about, and what its kernel answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/system/system_files.h"
#include "doctor/probes.h"

namespace fairlead::doctor {

struct RdmaPort {
  std::string number;   // "1"
  bool active = false;  // its state
  bool ethernet = true;
};

struct RdmaDevice {
  std::string name;                         // "mlx5_0"
  std::string folder;                       // "/sys/class/infiniband/mlx5_0"
  std::string driver;                       // "mlx5_core"; empty where it is no device of a bus: rxe, siw
  std::string bus_id;                       // "0000:3b:00.0", or empty
  std::vector<std::string> net_interfaces;  // whose addresses it has
  std::vector<RdmaPort> ports;

  [[nodiscard]] bool is_hardware() const noexcept { return !driver.empty(); }
};

struct PciDevice {
  std::string bus_id;
  std::string folder;            // "/sys/bus/pci/devices/0000:3b:00.0"
  std::uint64_t vendor = 0;      // 0x10de: NVIDIA
  std::uint64_t class_code = 0;  // 0x030200: 3D controller

  [[nodiscard]] bool is_nvidia_gpu() const noexcept {
    const std::uint64_t kind = class_code >> 8;
    return vendor == 0x10de && (kind == 0x0300 || kind == 0x0302);
  }
  [[nodiscard]] bool is_network() const noexcept { return class_code >> 16 == 0x02; }
  [[nodiscard]] bool is_bridge() const noexcept { return class_code >> 8 == 0x0604; }
};

struct Subject {
  SystemFiles files;
  Probes probes;
  std::vector<RdmaDevice> rdma;
  std::vector<PciDevice> pci;
  std::size_t nodes = 1;   // of NUMA
  bool container = false;  // by the files that Docker, Podman and Kubernetes leave

  [[nodiscard]] bool has_rdma_hardware() const noexcept;
  [[nodiscard]] std::vector<PciDevice> gpus() const;
  /// NICs with RDMA and GPUs: what reads and writes memory by itself here.
  [[nodiscard]] std::vector<PciDevice> movers() const;
};

[[nodiscard]] Subject read_subject(const SystemFiles& files, Probes probes);

/// Whether a word can stand in a shell command as it is: of a copy of another machine's files nothing else is repeated
/// there.
[[nodiscard]] bool is_plain(std::string_view word) noexcept;
/// The names in a folder that are plain, sorted.
[[nodiscard]] std::vector<std::string> plain_names(const SystemFiles& files, std::string_view folder);

/// A number of a file that may be written with 0x: "0x10de".
[[nodiscard]] std::uint64_t hexadecimal(std::string_view text);

}  // namespace fairlead::doctor
