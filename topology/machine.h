// What a machine is made of: plain values, whatever they were read from.
//
// Things refer to each other by their index in the machine's vectors. Bandwidths are bytes per second in one direction
// (links are full duplex); 0 is "not said". Threads: values; no shared state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fairlead::topology {

/// A socket; or several that share their memory, between which nothing is nearer or farther.
struct Package {
  std::vector<unsigned> sockets{};        // the system's indexes
  std::string vendor, model;              // "GenuineIntel", "Intel(R) Xeon(R) ..."; empty: not said
  unsigned family = 0, model_number = 0;  // CPUID's, with `vendor`
};

struct Core {
  std::size_t package = 0;
  std::vector<unsigned> pus{};         // hardware threads, the system's indexes
  std::vector<unsigned> usable_pus{};  // of these: what cpuset and affinity of this process, or the XML, allow
  bool isolated = false;               // the kernel's scheduler keeps off it (isolcpus)
};

struct Cache {
  unsigned level = 1;
  std::uint64_t bytes = 0;
  std::size_t count = 0;  // how many of them the machine has
};

/// A NUMA node.
struct Memory {
  unsigned os_index = 0;
  std::uint64_t bytes = 0;
  std::string kind{};                // "HBM", "SPM" as hwloc classifies it; empty: ordinary
  std::vector<std::size_t> cores{};  // for which it is local; empty: for none
  bool allowed = true;
  double bandwidth = 0;   // from memory attributes, of the local cores
  double latency_ns = 0;  // likewise
};

/// A host bridge (no parent), or a bridge or switch port below one.
struct Bridge {
  std::string bus_id{};  // of the upstream side, "0000:2b:00.0"; of a host bridge "0000:2b", its first bus
  std::optional<std::size_t> parent{};  // a bridge with a smaller index
  std::vector<std::size_t> cores{};     // to which a host bridge is local; all cores: the source does not say
  double link = 0;                      // negotiated, toward the parent or below it: a port has one link
};

enum class DeviceKind : std::uint8_t { kNic, kGpu, kNvSwitch, kOther };

/// A PCI function, or a NIC that has no PCI address.
struct Device {
  DeviceKind kind = DeviceKind::kOther;
  std::string name{};  // unique: "mlx5_0", "eth0", "gpu0", "nvswitch0"; its address where the source gives no name
  std::vector<std::string> rdma_devices{}, net_devices{}, other_devices{};  // of the operating system
  std::string bus_id{};                                                     // "0000:34:00.0", or empty
  std::string model{};                                                      // in words, or empty
  std::uint16_t pci_class = 0, vendor = 0, device = 0;
  std::optional<std::size_t> bridge{};  // that it hangs on
  std::vector<std::size_t> cores{};     // to which it is local; all cores: the source does not say
  double link = 0;                      // PCI Express, negotiated: an idle GPU may show less than it can do
  double rate = 0;                      // of a NIC: the sum of its ports
  bool rate_is_down = false;            // every port of which the system speaks is down
};

/// NVLink and its like between two things.
struct NvLink {
  enum class End : std::uint8_t { kDevice, kPackage };
  End from_kind = End::kDevice, to_kind = End::kDevice;
  std::size_t from = 0, to = 0;
  double bandwidth = 0;  // from `from` to `to`; the other direction is a link of its own
};

struct Machine {
  std::string name;  // of the product, or what it was read from
  bool this_machine = false;
  std::vector<Package> packages;  // at least one
  std::vector<Core> cores;        // at least one
  std::vector<Cache> caches;      // level 1 first
  std::vector<Memory> memories;   // at least one
  std::vector<Bridge> bridges;    // parents first
  std::vector<Device> devices;    // in the order of the PCI tree
  std::vector<NvLink> nvlinks;
  std::vector<double> numa_latency;  // memories x memories, row by row, relative (10: local); empty: not said
  double cpu_quota = 0;              // processors' worth of time that cgroups allow; 0: no limit
  std::vector<std::string> remarks;  // what could not be read, and what was left out, in sentences
};

/// "socket 0", "sockets 0-3"
[[nodiscard]] std::string name_of(const Package& package);
/// "numa0"
[[nodiscard]] std::string name_of(const Memory& memory);
/// The packages that these cores belong to, ascending.
[[nodiscard]] std::vector<std::size_t> packages_of(const Machine& machine, const std::vector<std::size_t>& cores);
/// Whether the source says to which package it is local, or there is only one.
[[nodiscard]] bool locality_is_known(const Machine& machine, const Device& device);
[[nodiscard]] std::size_t count_of(const Machine& machine, DeviceKind kind);
/// "12.5 GB/s" (10^9 bytes).
[[nodiscard]] std::string to_gigabytes_per_second(double bytes_per_second);
/// "755 GiB"
[[nodiscard]] std::string to_binary_size(std::uint64_t bytes);

}  // namespace fairlead::topology
