#include "topology/hwloc_reader.h"

#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <sstream>

#include "topology/hwloc_devices.h"
#include "topology/hwloc_versions.h"
#include "topology/this_machine.h"

namespace fairlead::topology {
namespace {

constexpr std::size_t kLargestFile = std::size_t{64} << 20;  // the largest machines' take 2 MB

struct Destroy {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Topology = std::unique_ptr<hwloc_topology, Destroy>;
using Bitmap = std::unique_ptr<hwloc_bitmap_s, Destroy>;

// hwloc builds every object of a description: one of a few words can ask for all of memory.
constexpr std::size_t kMostSynthetic = std::size_t{1} << 16;
bool is_too_large(std::string_view description) {
  std::size_t product = 1, depth = 0;
  for (std::size_t i = 0; i < description.size(); ++i) {
    depth += description[i] == '(';
    depth -= description[i] == ')' && depth > 0;
    const bool begins = i == 0 || description[i - 1] == ':' || description[i - 1] == ' ';
    if (depth > 0 || !begins || description[i] < '0' || description[i] > '9') continue;
    std::size_t count = 0;
    const auto [end, error] = std::from_chars(&description[i], description.data() + description.size(), count);
    if (error != std::errc() || count > kMostSynthetic) return true;
    product *= std::max<std::size_t>(count, 1);
    if (product > kMostSynthetic) return true;
  }
  return false;
}

unsigned number(const std::string& text) {
  unsigned value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

Topology make_topology() {
  hwloc_topology_t made = nullptr;
  if (hwloc_topology_init(&made) != 0) return nullptr;
  Topology topology(made);
  // Without the filter there is no PCI at all. What this process may not use is shown, and marked.
  hwloc_topology_set_io_types_filter(made, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  hwloc_topology_set_flags(made, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  // Those that open GPU drivers; and libpciaccess, whose table of names hwloc never frees: sysfs tells the rest.
  for (const char* const plugin : {"cuda", "nvml", "opencl", "rsmi", "amdsmi", "levelzero", "gl", "pci"}) {
    leave_out(made, plugin);
  }
  return topology;
}

std::vector<hwloc_obj_t> objects(hwloc_topology_t topology, hwloc_obj_type_t type) {
  std::vector<hwloc_obj_t> found;
  for (hwloc_obj_t object = nullptr; (object = hwloc_get_next_obj_by_type(topology, type, object)) != nullptr;) {
    found.push_back(object);
  }
  return found;
}

// A set without end, which a broken file may hold, ends here.
std::vector<unsigned> members(hwloc_const_cpuset_t set) {
  constexpr int kMostPus = 1 << 16;
  std::vector<unsigned> indexes;
  for (int i = hwloc_bitmap_first(set); i >= 0 && i < kMostPus; i = hwloc_bitmap_next(set, i)) {
    indexes.push_back(static_cast<unsigned>(i));
  }
  return indexes;
}

class MachineReader {
 public:
  explicit MachineReader(hwloc_topology_t topology) : topology_(topology) {}

  Result<Machine> read(const std::string& name) {
    const std::string product = info_of_all(topology_, "DMIProductName");
    machine_.name = product.empty() ? name.substr(name.find_last_of('/') + 1) : product;
    machine_.this_machine = hwloc_topology_is_thissystem(topology_) != 0;
    list_cores();
    memories_ = objects(topology_, HWLOC_OBJ_NUMANODE);
    if (cores_.empty()) return Status(Code::kInvalidArgument, "there is no processor in it");
    if (memories_.empty()) return Status(Code::kInvalidArgument, "there is no memory in it");
    read_packages();
    merge_packages();
    read_cores();
    read_caches();
    read_memories();
    read_latency();
    read_devices(topology_, cores_, &machine_);
    if (machine_.this_machine) {
      read_isolated_cores("", &machine_);
      read_nic_rates("", &machine_);
      read_cpu_quota("", &machine_);
    }
    return std::move(machine_);
  }

 private:
  // A hypervisor may tell of hardware threads and no cores, a file that was trimmed of neither, but by the sets of its
  // sockets and memories.
  void list_cores() {
    for (const hwloc_obj_type_t type : {HWLOC_OBJ_CORE, HWLOC_OBJ_PU}) {
      for (const hwloc_obj_t object : objects(topology_, type)) {
        if (object->cpuset != nullptr) cores_.push_back(object->cpuset);
      }
      if (!cores_.empty()) return;
    }
    for (const unsigned pu : members(hwloc_get_root_obj(topology_)->cpuset)) {
      implied_.emplace_back(hwloc_bitmap_alloc());
      hwloc_bitmap_only(implied_.back().get(), pu);
      cores_.push_back(implied_.back().get());
    }
    if (!cores_.empty()) machine_.remarks.emplace_back("No cores are listed: each hardware thread counts as one.");
  }

  void read_packages() {
    for (const hwloc_obj_t object : objects(topology_, HWLOC_OBJ_PACKAGE)) {
      if (object->cpuset == nullptr) continue;
      const bool unknown = object->os_index == HWLOC_UNKNOWN_INDEX;
      package_sets_.emplace_back(hwloc_bitmap_dup(object->cpuset));
      machine_.packages.push_back({.sockets = {unknown ? object->logical_index : object->os_index},
                                   .vendor = info(object, "CPUVendor"),
                                   .model = info(object, "CPUModel"),
                                   .family = number(info(object, "CPUFamilyNumber")),
                                   .model_number = number(info(object, "CPUModelNumber"))});
    }
    if (!machine_.packages.empty()) return;
    machine_.packages.push_back({.sockets = {0}, .vendor = {}, .model = {}});  // of all cores
    package_sets_.emplace_back(hwloc_bitmap_dup(hwloc_get_root_obj(topology_)->cpuset));
  }

  [[nodiscard]] bool has_own_memory(std::size_t package) const {
    return std::any_of(memories_.begin(), memories_.end(), [&](hwloc_obj_t memory) {
      return memory->cpuset != nullptr && hwloc_bitmap_iszero(memory->cpuset) == 0 &&
             hwloc_bitmap_isincluded(memory->cpuset, package_sets_[package].get()) != 0;
    });
  }

  // Sockets on one bus share a memory: none of them is nearer to it, nor to what hangs beside it, than the others. Not
  // so where each has its own beside one that all share (CXL).
  void merge_packages() {
    for (const hwloc_obj_t memory : memories_) {
      std::optional<std::size_t> first;
      for (std::size_t i = 0; memory->cpuset != nullptr && i < machine_.packages.size();) {
        const bool touches = hwloc_bitmap_intersects(package_sets_[i].get(), memory->cpuset) != 0;
        if (!touches || !first || (has_own_memory(*first) && has_own_memory(i))) {
          if (touches && !first) first = i;
          ++i;
          continue;
        }
        std::vector<unsigned>& sockets = machine_.packages[*first].sockets;
        sockets.insert(sockets.end(), machine_.packages[i].sockets.begin(), machine_.packages[i].sockets.end());
        hwloc_bitmap_or(package_sets_[*first].get(), package_sets_[*first].get(), package_sets_[i].get());
        machine_.packages.erase(machine_.packages.begin() + static_cast<std::ptrdiff_t>(i));
        package_sets_.erase(package_sets_.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
  }

  void read_cores() {
    const Bitmap usable(hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(topology_)));
    if (machine_.this_machine) {
      const Bitmap affinity(hwloc_bitmap_alloc());
      if (hwloc_get_cpubind(topology_, affinity.get(), HWLOC_CPUBIND_THREAD) == 0) {
        hwloc_bitmap_and(usable.get(), usable.get(), affinity.get());
      } else {
        machine_.remarks.emplace_back(
            "The affinity of this process cannot be read: every core of its cpuset counts as its.");
      }
    }
    for (const hwloc_const_cpuset_t set : cores_) {
      Core core{.package = 0, .pus = members(set)};
      for (std::size_t i = 0; i < package_sets_.size(); ++i) {
        if (hwloc_bitmap_intersects(package_sets_[i].get(), set)) core.package = i;
      }
      std::copy_if(core.pus.begin(), core.pus.end(), std::back_inserter(core.usable_pus),
                   [&usable](unsigned pu) { return hwloc_bitmap_isset(usable.get(), pu) != 0; });
      machine_.cores.push_back(std::move(core));
    }
  }

  void read_caches() {
    std::map<std::pair<unsigned, std::uint64_t>, std::size_t> counted;
    for (const hwloc_obj_type_t type : {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L4CACHE}) {
      for (const hwloc_obj_t object : objects(topology_, type)) {
        ++counted[{object->attr->cache.depth, object->attr->cache.size}];
      }
    }
    for (const auto& [cache, count] : counted) {
      machine_.caches.push_back({.level = cache.first, .bytes = cache.second, .count = count});
    }
  }

  void read_memories() {
    const hwloc_const_nodeset_t allowed = hwloc_topology_get_allowed_nodeset(topology_);
    for (const hwloc_obj_t object : memories_) {
      Memory memory{.os_index = object->os_index, .bytes = object->attr->numanode.local_memory};
      memory.kind = object->subtype == nullptr ? "" : object->subtype;
      memory.cores = cores_in(cores_, object->cpuset);
      memory.allowed = hwloc_bitmap_isset(allowed, object->os_index) != 0;
      memory.bandwidth = attribute(HWLOC_MEMATTR_ID_BANDWIDTH, object) * 1024 * 1024;  // hwloc: MiB/s
      memory.latency_ns = attribute(HWLOC_MEMATTR_ID_LATENCY, object);
      machine_.memories.push_back(std::move(memory));
    }
  }

  // As the cores beside it see it; 0 where the firmware does not say.
  double attribute(hwloc_memattr_id_t id, hwloc_obj_t memory) {
    hwloc_location initiator{};
    initiator.type = HWLOC_LOCATION_TYPE_CPUSET;
    initiator.location.cpuset = memory->cpuset;
    hwloc_uint64_t value = 0;
    if (hwloc_memattr_get_value(topology_, id, memory, &initiator, 0, &value) != 0) return 0;
    return static_cast<double>(value);
  }

  void read_latency() {
    const std::size_t size = memories_.size();
    const auto index = [this](hwloc_obj_t memory) {
      return static_cast<std::size_t>(std::find(memories_.begin(), memories_.end(), memory) - memories_.begin());
    };
    std::vector<double> matrix(size * size, 0);
    for_each_distance(topology_, "NUMALatency", [&](hwloc_obj_t from, hwloc_obj_t to, std::uint64_t value) {
      const std::size_t row = index(from), column = index(to);
      if (row < size && column < size) matrix[row * size + column] = static_cast<double>(value);
    });
    const bool complete = std::all_of(matrix.begin(), matrix.end(), [](double value) { return value > 0; });
    if (complete) machine_.numa_latency = std::move(matrix);
  }

  hwloc_topology_t topology_;
  CoreSets cores_;
  std::vector<Bitmap> implied_;       // those of cores_ that hwloc has no object for
  std::vector<Bitmap> package_sets_;  // of Machine::packages
  std::vector<hwloc_obj_t> memories_;
  Machine machine_;
};

Result<Machine> load(Topology topology, const std::string& name, Code code, const std::string& refused) {
  if (topology == nullptr || hwloc_topology_load(topology.get()) != 0) return Status(code, refused);
  Result<Machine> machine = MachineReader(topology.get()).read(name);
  if (!machine) return Status(machine.error().code(), fmt::format("{}: {}", name, machine.error().message()));
  return machine;
}

}  // namespace

Result<Machine> read_this_machine() {
  return load(make_topology(), "this machine", Code::kUnavailable,
              fmt::format("hwloc cannot read this machine: {}; is /sys mounted?", std::strerror(errno)));
}

Result<Machine> read_xml_file(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  if (!file || !(content << file.rdbuf()) || content.tellp() <= 0) {
    const int error = errno;
    const Code code = error == ENOENT ? Code::kNotFound : error == EACCES ? Code::kPermissionDenied : Code::kDataLoss;
    return Status(code, fmt::format("cannot read {}: {}", path, error == 0 ? "it is empty" : std::strerror(error)));
  }
  return read_xml(content.view(), path);
}

Result<Machine> read_xml(std::string_view text, const std::string& name) {
  if (text.size() > kLargestFile) {
    return Status(Code::kInvalidArgument, fmt::format("{} is larger than {} MiB", name, kLargestFile >> 20));
  }
  const Result<std::string> readable = to_readable_xml(text);
  if (!readable) return Status(readable.error().code(), fmt::format("{}: {}", name, readable.error().message()));
  Topology topology = make_topology();
  const std::string refused =
      fmt::format("{} is XML, but hwloc finds no topology in it; write it anew with lstopo FILE.xml", name);
  const bool set = topology != nullptr && hwloc_topology_set_xmlbuffer(topology.get(), readable->c_str(),
                                                                       static_cast<int>(readable->size() + 1)) == 0;
  if (!set) return Status(Code::kDataLoss, refused);
  return load(std::move(topology), name, Code::kDataLoss, refused);
}

Result<Machine> read_synthetic(const std::string& description) {
  if (is_too_large(description)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}' has more than {} hardware threads", description, kMostSynthetic));
  }
  Topology topology = make_topology();
  const std::string refused =
      fmt::format("'{}' is no synthetic topology of hwloc's, such as 'package:2 core:8 pu:2'", description);
  if (topology == nullptr || description.empty() || description.size() > 4096 ||
      hwloc_topology_set_synthetic(topology.get(), description.c_str()) != 0) {
    return Status(Code::kInvalidArgument, refused);
  }
  return load(std::move(topology), description, Code::kInvalidArgument, refused);
}

}  // namespace fairlead::topology
