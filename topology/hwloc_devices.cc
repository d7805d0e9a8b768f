#include "topology/hwloc_devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <memory>
#include <string_view>

#include "topology/hwloc_versions.h"

namespace fairlead::topology {
namespace {

constexpr std::uint16_t kNvidia = 0x10de;

using PciAttributes = decltype(hwloc_obj_attr_u::pcidev);

std::string to_bus_id(const PciAttributes& pci) {
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", static_cast<unsigned>(pci.domain), pci.bus, pci.dev, pci.func);
}

// hwloc gives 10^9 bytes per second. What an edited file says may be no bandwidth at all.
double link_of(const PciAttributes& pci) {
  const double value = pci.linkspeed;
  return value > 0 && value < 1e6 ? value * 1e9 : 0;
}

// "100 Gb/sec (4X EDR)" or "100": sysfs' words for a port of a RDMA device and of a network device. hwloc writes
// neither; files may be given them by hand (docs/topology.md).
double rate_of(hwloc_obj_t os_device) {
  for (const auto& [name, bits] : {std::pair("Rate", 1e9), std::pair("Speed", 1e6)}) {
    const std::string text = info(os_device, name);
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && value > 0 && value < 1e9) return value * bits / 8;
  }
  return 0;
}

class DeviceReader {
 public:
  DeviceReader(hwloc_topology_t topology, const CoreSets& cores, Machine* machine)
      : topology_(topology), cores_(cores), machine_(*machine) {}

  void read() {
    descend(hwloc_get_root_obj(topology_));
    settle_kinds();
    settle_names();
    read_nvlinks();
    remark();
  }

 private:
  void descend(hwloc_obj_t object) {
    for (hwloc_obj_t io = object->io_first_child; io != nullptr; io = io->next_sibling) visit(io, object, {});
    for (hwloc_obj_t child = object->first_child; child != nullptr; child = child->next_sibling) descend(child);
  }

  // `home` is the part of the machine that `io` hangs on.
  void visit(hwloc_obj_t io, hwloc_obj_t home, std::optional<std::size_t> bridge) {
    if (io->type == HWLOC_OBJ_BRIDGE) {
      Bridge made{.bus_id = "", .parent = bridge, .cores = cores_in(cores_, home->cpuset)};
      const auto& attributes = io->attr->bridge;
      if (attributes.upstream_type == HWLOC_OBJ_BRIDGE_PCI) {
        made.bus_id = to_bus_id(attributes.upstream.pci);
        made.link = link_of(attributes.upstream.pci);
      } else {
        made.bus_id = fmt::format("{:04x}:{:02x}", static_cast<unsigned>(attributes.downstream.pci.domain),
                                  attributes.downstream.pci.secondary_bus);
      }
      bridge = machine_.bridges.size();
      machine_.bridges.push_back(std::move(made));
    } else if (io->type == HWLOC_OBJ_PCI_DEVICE) {
      add_function(io, home, bridge);
      return;
    } else if (io->type == HWLOC_OBJ_OS_DEVICE) {
      add_homeless(io, home);
      return;
    }
    for (hwloc_obj_t child = io->io_first_child; child != nullptr; child = child->next_sibling) {
      visit(child, home, bridge);
    }
  }

  void add_function(hwloc_obj_t io, hwloc_obj_t home, std::optional<std::size_t> bridge) {
    const PciAttributes& pci = io->attr->pcidev;
    Device made{.bus_id = to_bus_id(pci),
                .model = info(io, "PCIDevice"),
                .pci_class = static_cast<std::uint16_t>(pci.class_id),
                .vendor = pci.vendor_id,
                .device = pci.device_id,
                .bridge = bridge,
                .cores = cores_in(cores_, home->cpuset),
                .link = link_of(pci)};
    for (hwloc_obj_t os = io->io_first_child; os != nullptr; os = os->next_sibling) add_os_device(os, &made);
    by_object_[io] = machine_.devices.size();
    machine_.devices.push_back(std::move(made));
  }

  void add_os_device(hwloc_obj_t os, Device* device) {
    if (os->type != HWLOC_OBJ_OS_DEVICE || os->name == nullptr) return;
    by_object_[os] = machine_.devices.size();
    switch (os_device_of(os)) {
      case OsDevice::kOpenFabrics:
        device->rdma_devices.emplace_back(os->name);
        device->rate = std::max(device->rate, rate_of(os));
        break;
      case OsDevice::kNetwork:
        device->net_devices.emplace_back(os->name);
        device->rate = std::max(device->rate, rate_of(os));
        break;
      case OsDevice::kCompute:
        computes_[machine_.devices.size()] |= is_programmable(os->name);
        if (const std::string model = info(os, "GPUModel"); !model.empty()) device->model = model;
        device->other_devices.emplace_back(os->name);
        break;
      case OsDevice::kOther:
        device->other_devices.emplace_back(os->name);
        break;
    }
    for (hwloc_obj_t child = os->io_first_child; child != nullptr; child = child->next_sibling) {
      add_os_device(child, device);
    }
  }

  // NICs of a hypervisor's own bus hang on the machine itself. Something that computes is seen by its PCI class as
  // well.
  void add_homeless(hwloc_obj_t os, hwloc_obj_t home) {
    if (os->name == nullptr) return;
    const OsDevice type = os_device_of(os);
    if (type == OsDevice::kCompute) homeless_.emplace_back(os->name);
    if (type != OsDevice::kNetwork && type != OsDevice::kOpenFabrics) return;
    Device made{.model = "not on PCI", .cores = cores_in(cores_, home->cpuset)};
    add_os_device(os, &made);
    machine_.devices.push_back(std::move(made));
  }

  // hwloc gives what draws on a screen ("card0", ":0.0") the type of what computes.
  static bool is_programmable(std::string_view name) {
    return !name.starts_with("card") && !name.starts_with("render") && !name.starts_with("control") &&
           !name.starts_with(':');
  }

  // Rates of 2.5 and 5 GT/s, which links fall back to while nobody uses them, are told by their encoding of 8b/10b.
  static bool looks_idle(const Device& device) {
    return device.kind == DeviceKind::kGpu && device.link > 0 && device.link <= 8e9 &&
           std::fmod(device.link, 0.25e9) == 0;
  }

  void remark() {
    std::vector<std::string> idle;
    for (const Device& device : machine_.devices) {
      if (looks_idle(device)) idle.push_back(device.name);
    }
    if (!idle.empty()) {
      machine_.remarks.push_back(
          fmt::format("The links of {} were at 2.5 or 5 GT/s when they were read, as those of idle GPUs are. Read the "
                      "machine while "
                      "they work, or give what they can do with --bandwidth PCI-ADDRESS=GB/s.",
                      fmt::join(idle, ", ")));
    }
    if (!homeless_.empty()) {
      machine_.remarks.push_back(
          fmt::format("Left out, as no PCI device belongs to it: {}.", fmt::join(homeless_, ", ")));
    }
  }

  void settle_kinds() {
    bool named_nic = false;
    for (const Device& device : machine_.devices) {
      named_nic = named_nic || !device.rdma_devices.empty() || !device.net_devices.empty();
    }
    for (std::size_t i = 0; i < machine_.devices.size(); ++i) {
      Device& device = machine_.devices[i];
      const unsigned base = device.pci_class >> 8;
      const bool named = !device.rdma_devices.empty() || !device.net_devices.empty();
      const bool unnamed_nic = base == 0x02 && !named_nic;  // the source knows no device of the operating system at all
      const bool accelerator = device.pci_class == 0x0302 || device.pci_class == 0x0380 || device.pci_class == 0x1200;
      // The screen of a server's board is of the class of graphics cards, too.
      const bool graphics = device.pci_class == 0x0300 && is_gpu_vendor(device.vendor) && computes_[i];
      if (named || unnamed_nic) {
        device.kind = DeviceKind::kNic;
      } else if (device.pci_class == 0x0680 && device.vendor == kNvidia) {
        device.kind = DeviceKind::kNvSwitch;
      } else if (accelerator || graphics) {
        device.kind = DeviceKind::kGpu;
      }
    }
  }

  static bool is_gpu_vendor(std::uint16_t vendor) { return vendor == kNvidia || vendor == 0x1002 || vendor == 0x8086; }

  void settle_names() {
    std::size_t gpus = 0, switches = 0;
    std::map<std::string, std::size_t> used;
    for (Device& device : machine_.devices) {
      if (device.kind == DeviceKind::kGpu) {
        device.name = fmt::format("gpu{}", gpus++);
      } else if (device.kind == DeviceKind::kNvSwitch) {
        device.name = fmt::format("nvswitch{}", switches++);
      } else if (!device.rdma_devices.empty()) {
        device.name = device.rdma_devices.front();
      } else {
        device.name = device.net_devices.empty() ? device.bus_id : device.net_devices.front();
      }
      if (const std::size_t before = used[device.name]++; before != 0) {  // only an edited file has one twice
        device.name = fmt::format("{}#{}", device.name, before + 1);
      }
    }
  }

  void read_nvlinks() {
    for_each_distance(topology_, "NVLinkBandwidth", [this](hwloc_obj_t from, hwloc_obj_t to, std::uint64_t megabytes) {
      NvLink link{.bandwidth = static_cast<double>(megabytes) * 1e6};
      if (from == to || megabytes == 0 || from == nullptr || to == nullptr) return;
      if (!end_of(from, &link.from_kind, &link.from) || !end_of(to, &link.to_kind, &link.to)) return;
      if (link.from_kind != link.to_kind || link.from != link.to) machine_.nvlinks.push_back(link);
    });
  }

  bool end_of(hwloc_obj_t object, NvLink::End* kind, std::size_t* index) const {
    if (const auto found = by_object_.find(object); found != by_object_.end()) {
      *kind = NvLink::End::kDevice;
      *index = found->second;
      return true;
    }
    if (object->cpuset == nullptr) return false;
    const std::vector<std::size_t> packages = packages_of(machine_, cores_in(cores_, object->cpuset));
    *kind = NvLink::End::kPackage;
    *index = packages.empty() ? 0 : packages.front();
    return packages.size() == 1;
  }

  hwloc_topology_t topology_;
  const CoreSets& cores_;
  Machine& machine_;
  std::map<hwloc_obj_t, std::size_t> by_object_;  // PCI functions and what the system makes of them: device
  std::map<std::size_t, bool> computes_;          // device: it has a CUDA, OpenCL, NVML or ROCm device
  std::vector<std::string> homeless_;
};

}  // namespace

std::vector<std::size_t> cores_in(const CoreSets& cores, hwloc_const_cpuset_t set) {
  std::vector<std::size_t> inside;
  for (std::size_t i = 0; set != nullptr && i < cores.size(); ++i) {
    if (hwloc_bitmap_intersects(cores[i], set)) inside.push_back(i);
  }
  return inside;
}

void read_devices(hwloc_topology_t topology, const CoreSets& cores, Machine* machine) {
  DeviceReader(topology, cores, machine).read();
}

}  // namespace fairlead::topology
