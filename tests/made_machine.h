// Machines that tests make up: a folder with the files of /proc and /sys that are looked at, gone with its owner.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/system/system_files.h"

namespace fairlead::made {

class Machine {
 public:
  Machine() {
    std::string pattern = ::testing::TempDir() + "fairlead-machine-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) throw std::filesystem::filesystem_error("mkdtemp", pattern, {});
    root_ = pattern;
  }
  ~Machine() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// A file; folders above it are made.
  Machine& file(std::string_view path, std::string_view text) {
    const std::filesystem::path target = made(path);
    std::ofstream(target, std::ios::binary) << text << '\n';
    return *this;
  }
  /// A symbolic link to a path of this machine.
  Machine& link(std::string_view path, std::string_view target) {
    std::filesystem::create_symlink(root_ + std::string(target), made(path));
    return *this;
  }
  Machine& without(std::string_view path) {
    std::filesystem::remove_all(root_ + std::string(path));
    return *this;
  }
  [[nodiscard]] SystemFiles files() const { return SystemFiles(root_); }
  [[nodiscard]] const std::string& root() const { return root_; }

 private:
  std::filesystem::path made(std::string_view path) {
    const std::filesystem::path target = root_ + std::string(path);
    std::filesystem::create_directories(target.parent_path());
    return target;
  }

  std::string root_;
};

/// /proc/self/limits. Words: "unlimited" or a number.
struct Limits {
  std::string locked = "8388608", files = "1048576", space = "unlimited", data = "unlimited";
};
inline void set_limits(Machine& machine, const Limits& limits = {}) {
  std::string text = fmt::format("{:<26}{:<21}{:<21}{:<10}\n", "Limit", "Soft Limit", "Hard Limit", "Units");
  const auto row = [&text](std::string_view name, const std::string& soft, std::string_view unit) {
    text += fmt::format("{:<26}{:<21}{:<21}{:<10}\n", name, soft, "unlimited", unit);
  };
  row("Max data size", limits.data, "bytes");
  row("Max open files", limits.files, "files");
  row("Max locked memory", limits.locked, "bytes");
  row("Max address space", limits.space, "bytes");
  machine.file("/proc/self/limits", text);
}

/// /proc/self/status; sizes in KiB.
struct Status {
  std::uint64_t size = 200'000, data = 50'000, pinned = 0;
  std::string capabilities = "0000000000000000", cores = "0-1";
};
inline void set_status(Machine& machine, const Status& status = {}) {
  machine.file("/proc/self/status",
               fmt::format("Name:\tfairlead\nVmSize:\t{:>8} kB\nVmPin:\t{:>8} kB\nVmData:\t{:>8} kB\nCapEff:\t{}\n"
                           "Cpus_allowed_list:\t{}",
                           status.size, status.pinned, status.data, status.capabilities, status.cores));
}

/// A control group of version 2 with this process in it: /a/b of "/a/b". Empty words: no such file.
inline void set_group(Machine& machine, const std::string& path, const std::string& max, const std::string& current,
                      const std::string& swap = "") {
  const std::string folder = "/sys/fs/cgroup" + path;
  machine.file(folder + "/memory.max", max).file(folder + "/memory.current", current);
  if (!swap.empty()) machine.file(folder + "/memory.swap.max", swap);
}

/// A function on PCI.
inline void add_pci(Machine& machine, const std::string& bus_id, std::string_view vendor, std::string_view code) {
  const std::string folder = "/sys/bus/pci/devices/" + bus_id;
  machine.file(folder + "/vendor", vendor).file(folder + "/class", code);
}

/// An interface; `bus_id` may be empty.
inline void add_interface(Machine& machine, const std::string& name, const std::string& bus_id, int mtu, int speed) {
  const std::string folder = "/sys/class/net/" + name;
  machine.file(folder + "/mtu", std::to_string(mtu)).file(folder + "/speed", std::to_string(speed));
  if (!bus_id.empty()) machine.link(folder + "/device", "/sys/bus/pci/devices/" + bus_id);
}

/// An RDMA device with one port on a PCI function that is there, and uverbsN for the N-th of them.
inline void add_rdma(Machine& machine, const std::string& name, const std::string& bus_id, const std::string& driver,
                     const std::string& interface, std::string_view state, int number) {
  const std::string pci = "/sys/bus/pci/devices/" + bus_id, folder = "/sys/class/infiniband/" + name;
  machine.link(folder + "/device", pci).file("/sys/bus/pci/drivers/" + driver + "/uevent", "");
  machine.link(pci + "/driver", "/sys/bus/pci/drivers/" + driver);
  machine.file(folder + "/ports/1/state", state).file(folder + "/ports/1/link_layer", "Ethernet");
  machine.file(folder + "/ports/1/gid_attrs/ndevs/0", interface);
  machine.file(fmt::format("/sys/class/infiniband_verbs/uverbs{}/ibdev", number), name);
}

/// What every machine has: `nodes` NUMA nodes, `cores` cores, stock settings of a distribution.
inline void make_plain(Machine& machine, int nodes, int cores) {
  set_limits(machine);
  set_status(machine, {.capabilities = "0000000000000000", .cores = fmt::format("0-{}", cores - 1)});
  machine.file("/proc/self/cgroup", "0::/user.slice").file("/proc/self/uid_map", "0 0 4294967295");
  machine.file("/proc/meminfo",
               "MemTotal:       16777216 kB\nSwapTotal:       1048576 kB\nCommitLimit:     8388608 kB\n"
               "Committed_AS:    7340032 kB");
  machine.file("/proc/stat", "cpu  1000 0 1000 97900 0 0 100 0 0 0").file("/proc/self/maps", "00400000-00401000 r-xp");
  machine.file("/proc/net/snmp", "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors\nUdp: 24 0 0 25 0");
  machine.file("/proc/sys/vm/max_map_count", "65530").file("/proc/sys/vm/overcommit_memory", "0");
  machine.file("/proc/sys/vm/zone_reclaim_mode", "0").file("/proc/sys/kernel/numa_balancing", nodes > 1 ? "1" : "0");
  machine.file("/proc/sys/kernel/osrelease", "6.1.0-28-amd64");
  machine.file("/proc/sys/net/core/rmem_max", "212992").file("/proc/sys/net/core/wmem_max", "212992");
  machine.file("/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456")
      .file("/proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304");
  for (int i = 0; i < nodes; ++i) machine.file(fmt::format("/sys/devices/system/node/node{}/cpulist", i), "");
  machine.file("/sys/devices/system/cpu/online", fmt::format("0-{}", cores - 1))
      .file("/sys/devices/system/cpu/isolated", "");
  machine.file("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc");
  for (const char* const size : {"2048kB", "1048576kB"}) {
    const std::string folder = fmt::format("/sys/kernel/mm/hugepages/hugepages-{}", size);
    machine.file(folder + "/nr_hugepages", "0").file(folder + "/free_hugepages", "0");
  }
  machine.file("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never");
}

/// Two cores of a busy host, no RDMA: most is not here.
inline void make_small_guest(Machine& machine) {
  make_plain(machine, 1, 2);
  machine.file("/proc/stat", "cpu  1000 0 1000 90000 0 0 0 8000 0 0");
  machine.file("/sys/devices/system/clocksource/clocksource0/current_clocksource", "acpi_pm");
  machine.file("/sys/devices/system/clocksource/clocksource0/available_clocksource", "kvm-clock tsc acpi_pm");
  machine.file("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]");
  machine.file("/proc/sys/kernel/yama/ptrace_scope", "1");
  machine.file("/proc/net/snmp", "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors\nUdp: 24 0 0 25 117");
  add_pci(machine, "0000:00:03.0", "0x1af4", "0x020000");
  add_interface(machine, "eth0", "0000:00:03.0", 1500, -1);
}

/// Two sockets, two NICs, all set as it should be.
inline void make_tuned_server(Machine& machine) {
  make_plain(machine, 2, 16);
  set_limits(machine, {.locked = "unlimited"});
  set_status(machine, {.capabilities = "0000000000000000", .cores = "0-15"});
  machine.file("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "1024");
  machine.file("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "1000");
  machine.file("/proc/sys/kernel/numa_balancing", "0");
  machine.file("/proc/sys/net/core/rmem_max", "16777216").file("/proc/sys/net/core/wmem_max", "16777216");
  machine.file("/sys/devices/system/cpu/isolated", "12-15");
  for (int i = 0; i < 16; ++i) {
    machine.file(fmt::format("/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor", i), "performance");
  }
  for (int i = 0; i < 2; ++i) {
    const std::string bus_id = fmt::format("0000:{}:00.0", i == 0 ? "3b" : "af"),
                      interface = fmt::format("ens{}np0", i);
    const std::string pci = "/sys/bus/pci/devices/" + bus_id;
    add_pci(machine, bus_id, "0x15b3", "0x020000");
    add_interface(machine, interface, bus_id, 9000, 100000);
    machine.file(pci + "/net/" + interface + "/mtu", "9000");
    add_rdma(machine, fmt::format("mlx5_{}", i), bus_id, "mlx5_core", interface, "4: ACTIVE", i);
    machine.file(fmt::format("/dev/infiniband/uverbs{}", i), "");
    machine.file(pci + "/current_link_speed", "16.0 GT/s PCIe").file(pci + "/current_link_width", "16");
    machine.file(pci + "/max_link_speed", "16.0 GT/s PCIe").file(pci + "/max_link_width", "16");
    machine.file(pci + "/iommu_group/type", "identity");
    machine.file("/sys/class/net/" + interface + "/ecn/roce_np/enable/3", "1");
    machine.file("/sys/class/net/" + interface + "/ecn/roce_rp/enable/3", "1");
    machine.file(fmt::format("/sys/class/infiniband/mlx5_{}/ports/1/hw_counters/out_of_sequence", i), "0");
  }
}

/// The configuration space of a bridge whose ACS control word is `control`.
inline std::string bridge_config(unsigned control) {
  std::string config(4096, '\0');
  const auto word = [&config](std::size_t at, unsigned value) {
    config[at] = static_cast<char>(value & 0xff);
    config[at + 1] = static_cast<char>(value >> 8 & 0xff);
  };
  word(0x100, 0x0001);  // advanced error reporting, then ACS at 0x150
  word(0x102, 0x1501);
  word(0x150, 0x000d);
  word(0x152, 0x0001);
  word(0x156, control);
  return config;
}

/// A GPU server as it comes out of the box: nearly everything is to be changed.
inline void make_untuned_gpu_server(Machine& machine) {
  make_plain(machine, 2, 8);
  machine.file("/sys/devices/system/cpu/isolated", "6-7");
  set_status(machine, {.capabilities = "0000000000000000", .cores = "0-5"});
  for (int i = 0; i < 8; ++i) {
    machine.file(fmt::format("/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor", i),
                 i < 2 ? "performance" : "powersave");
  }
  machine.file("/proc/sys/vm/zone_reclaim_mode", "1").file("/proc/sys/vm/overcommit_memory", "2");
  machine.file("/proc/sys/vm/max_map_count", "32000");
  machine.file("/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t262144");
  const std::string nic = "/sys/bus/pci/devices/0000:17:00.0", gpu = "/sys/bus/pci/devices/0000:18:00.0";
  add_pci(machine, "0000:16:00.0", "0x10b5", "0x060400");
  machine.file("/sys/bus/pci/devices/0000:16:00.0/config", bridge_config(0x1d));
  add_pci(machine, "0000:17:00.0", "0x15b3", "0x020000");
  add_interface(machine, "ens3np0", "0000:17:00.0", 1500, 100000);
  add_rdma(machine, "mlx5_0", "0000:17:00.0", "mlx5_core", "ens3np0", "4: ACTIVE", 0);
  machine.file("/dev/infiniband/uverbs0", "");
  machine.file(nic + "/current_link_speed", "8.0 GT/s PCIe").file(nic + "/current_link_width", "8");
  machine.file(nic + "/max_link_speed", "16.0 GT/s PCIe").file(nic + "/max_link_width", "16");
  machine.file(nic + "/iommu_group/type", "DMA-FQ").file(gpu + "/iommu_group/type", "DMA-FQ");
  machine.file("/sys/class/net/ens3np0/ecn/roce_np/enable/3", "0");
  machine.file("/sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence", "1234");
  machine.file("/sys/class/infiniband/mlx5_0/ports/1/hw_counters/local_ack_timeout_err", "7");
  add_pci(machine, "0000:18:00.0", "0x10de", "0x030200");
  machine.file(gpu + "/resource",
               "0x00000000c0000000 0x00000000c0ffffff 0x0000000000040200\n"
               "0x0000380000000000 0x000038000fffffff 0x000000000014220c");
  machine.file("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01");
}

/// A guest on vSphere with a PVRDMA device, whose memory is not reserved.
inline void make_pvrdma_guest(Machine& machine) {
  make_plain(machine, 1, 4);
  set_limits(machine, {.locked = "65536"});
  add_pci(machine, "0000:0b:00.0", "0x15ad", "0x020000");
  add_pci(machine, "0000:0b:00.1", "0x15ad", "0x020000");
  add_interface(machine, "ens192", "0000:0b:00.0", 1500, 10000);
  add_rdma(machine, "vmw_pvrdma0", "0000:0b:00.1", "vmw_pvrdma", "ens192", "4: ACTIVE", 0);
  machine.file("/dev/infiniband/uverbs0", "");
  machine.file("/sys/kernel/debug/vmmemctl",
               "balloon capabilities:   0x1e\ntarget:             262144 pages\n"
               "current:            131072 pages");
}

/// A container on a host with RDMA that was not given it, with half a GiB of memory and one and a half cores.
inline void make_container(Machine& machine) {
  make_plain(machine, 1, 8);
  set_limits(machine, {.locked = "65536", .files = "512"});
  machine.file("/.dockerenv", "").file("/proc/self/cgroup", "0::/");
  set_group(machine, "", "536870912", "520000000", "0");
  machine.file("/sys/fs/cgroup/cpu.max", "150000 100000")
      .file("/sys/fs/cgroup/cpu.stat", "nr_periods 900\nnr_throttled 12");
  add_pci(machine, "0000:3b:00.0", "0x15b3", "0x020000");
  add_rdma(machine, "mlx5_0", "0000:3b:00.0", "mlx5_core", "", "1: DOWN", 0);
  machine.without("/proc/sys/net/core");
}

}  // namespace fairlead::made
