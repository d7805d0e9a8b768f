#include "topology/graph_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace fairlead::topology {
namespace {

class Builder {
 public:
  Builder(const Machine& machine, const BandwidthTable& table) : machine_(machine), table_(table) {}

  MachineGraph build() {
    add_packages();
    add_memories();
    add_sockets();
    add_bridges();
    add_devices();
    add_root_edges();
    add_nvlinks();
    add_ports();
    return std::move(made_);
  }

 private:
  using Cores = std::vector<std::size_t>;

  void edge(EdgeKind kind, std::size_t from, std::size_t to, const Bandwidth& bandwidth, std::string name) {
    made_.graph.add_edge({kind, from, to, bandwidth, bandwidth, std::move(name)});
  }

  void add_packages() {
    for (std::size_t i = 0; i < machine_.packages.size(); ++i) {
      made_.packages.push_back(made_.graph.add_node(NodeKind::kPackage, name_of(machine_.packages[i]), i));
    }
  }

  // A package whose memories are local to different cores of its own (sub-NUMA clustering, a virtual machine's NUMA)
  // has a node for each such group; elsewhere the package stands for its cores.
  void add_memories() {
    std::map<std::size_t, std::set<Cores>> groups;
    for (const Memory& memory : machine_.memories) {
      const Cores packages = packages_of(machine_, memory.cores);
      if (packages.size() == 1) groups[packages.front()].insert(memory.cores);
    }
    for (std::size_t i = 0; i < machine_.memories.size(); ++i) {
      const Memory& memory = machine_.memories[i];
      const std::size_t node = made_.graph.add_node(NodeKind::kMemory, name_of(memory), i);
      made_.memories.push_back(node);
      const Bandwidth bandwidth = table_.memory(machine_, i);
      Cores packages = packages_of(machine_, memory.cores);
      if (packages.empty()) packages = nearest_packages(i);
      for (const std::size_t package : packages) {
        std::size_t beside = made_.packages[package];
        if (packages.size() == 1 && groups[package].size() > 1 && !memory.cores.empty()) {
          beside = domain(package, memory, bandwidth);
        }
        edge(EdgeKind::kMemory, node, beside, bandwidth, fmt::format("the memory of {}", name_of(memory)));
      }
    }
  }

  std::size_t domain(std::size_t package, const Memory& memory, const Bandwidth& bandwidth) {
    if (const auto found = domains_.find(memory.cores); found != domains_.end()) return found->second;
    const std::size_t node =
        made_.graph.add_node(NodeKind::kDomain, fmt::format("cores of {}", name_of(memory)), domains_.size());
    domains_.emplace(memory.cores, node);
    Bandwidth mesh = bandwidth;
    mesh.origin = Origin::kAssumed;
    mesh.source = "as wide as the memory beside it";
    edge(EdgeKind::kMesh, node, made_.packages[package], mesh,
         fmt::format("the way from the cores of {} into its socket", name_of(memory)));
    return node;
  }

  // For memory without cores (CXL, persistent): where the firmware's distances say it is.
  Cores nearest_packages(std::size_t memory) const {
    const std::size_t count = machine_.memories.size();
    std::optional<std::size_t> nearest;
    for (std::size_t other = 0; other < count && !machine_.numa_latency.empty(); ++other) {
      if (machine_.memories[other].cores.empty()) continue;
      const auto latency = [&](std::size_t to) { return machine_.numa_latency[memory * count + to]; };
      if (!nearest || latency(other) < latency(*nearest)) nearest = other;
    }
    if (nearest) return packages_of(machine_, machine_.memories[*nearest].cores);
    Cores all(machine_.packages.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    return all;
  }

  // Sockets are linked unless a third lies nearer to both: all to all, or a ring or grid where the distances say so.
  void add_sockets() {
    const std::size_t count = machine_.packages.size();
    const std::vector<double> distances = socket_distances();
    const auto distance = [&](std::size_t a, std::size_t b) { return distances[a * count + b]; };
    for (std::size_t a = 0; a < count; ++a) {
      for (std::size_t b = a + 1; b < count; ++b) {
        bool between = false;
        for (std::size_t c = 0; c < count; ++c) {
          between = between || (c != a && c != b && distance(a, c) < distance(a, b) && distance(c, b) < distance(a, b));
        }
        if (between) continue;
        edge(EdgeKind::kSocket, made_.packages[a], made_.packages[b], table_.socket(machine_, a),
             fmt::format("the link between {} and {}", name_of(machine_.packages[a]), name_of(machine_.packages[b])));
      }
    }
  }

  // Row by row, the smallest between memories of two sockets; 0 where nobody says.
  std::vector<double> socket_distances() const {
    const std::size_t count = machine_.memories.size(), sockets = machine_.packages.size();
    std::vector<double> smallest(sockets * sockets);
    if (machine_.numa_latency.empty()) return smallest;
    std::vector<std::optional<std::size_t>> socket_of;
    for (const Memory& memory : machine_.memories) {
      const Cores packages = packages_of(machine_, memory.cores);
      socket_of.push_back(packages.size() == 1 ? std::optional(packages.front()) : std::nullopt);
    }
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t j = 0; j < count; ++j) {
        if (!socket_of[i] || !socket_of[j]) continue;
        double& between = smallest[*socket_of[i] * sockets + *socket_of[j]];
        const double value = machine_.numa_latency[i * count + j];
        between = between > 0 ? std::min(between, value) : value;
      }
    }
    return smallest;
  }

  void add_bridges() {
    for (std::size_t i = 0; i < machine_.bridges.size(); ++i) {
      const Bridge& bridge = machine_.bridges[i];
      made_.bridges.push_back(
          bridge.parent ? made_.graph.add_node(NodeKind::kPciBridge, bridge.bus_id, i)
                        : made_.graph.add_node(NodeKind::kHostBridge, fmt::format("host bridge {}", bridge.bus_id), i));
    }
    sum_below_.resize(machine_.bridges.size());
    widest_below_.resize(machine_.bridges.size());
    for (const Device& device : machine_.devices) {
      if (device.bridge && device.kind != DeviceKind::kOther) count_below(*device.bridge, table_.link(device));
    }
    for (std::size_t i = machine_.bridges.size(); i-- > 0;) {  // children before their parents
      const Bridge& bridge = machine_.bridges[i];
      if (!bridge.parent) continue;
      const Bandwidth link = table_.link(bridge, widest_below_[i]);
      count_below(*bridge.parent, link);
      edge(EdgeKind::kPci, made_.bridges[*bridge.parent], made_.bridges[i], link,
           fmt::format("the link of {}", bridge.bus_id));
    }
  }

  void count_below(std::size_t bridge, const Bandwidth& link) {
    sum_below_[bridge] += link.bytes_per_second;
    if (link.bytes_per_second > widest_below_[bridge].bytes_per_second) widest_below_[bridge] = link;
  }

  void add_devices() {
    for (std::size_t i = 0; i < machine_.devices.size(); ++i) {
      const Device& device = machine_.devices[i];
      made_.devices.emplace_back();
      if (device.kind == DeviceKind::kOther) continue;
      const NodeKind kind = device.kind == DeviceKind::kNic   ? NodeKind::kNic
                            : device.kind == DeviceKind::kGpu ? NodeKind::kGpu
                                                              : NodeKind::kNvSwitch;
      const std::size_t node = made_.graph.add_node(kind, device.name, i);
      made_.devices.back() = node;
      const std::string name = fmt::format("the link of {}", device.name);
      if (device.bridge) {
        edge(EdgeKind::kPci, made_.bridges[*device.bridge], node, table_.link(device), name);
      } else {
        for (const std::size_t at : homes(device.cores)) edge(EdgeKind::kRoot, at, node, table_.link(device), name);
      }
    }
  }

  // Never what limits: what lies below does.
  void add_root_edges() {
    for (std::size_t i = 0; i < machine_.bridges.size(); ++i) {
      const Bridge& bridge = machine_.bridges[i];
      if (bridge.parent) continue;
      const Bandwidth sum{sum_below_[i], Origin::kAssumed, "all of its ports together"};
      for (const std::size_t at : homes(bridge.cores)) {
        edge(EdgeKind::kRoot, at, made_.bridges[i], sum, fmt::format("host bridge {}", bridge.bus_id));
      }
    }
  }

  // The nodes that stand for these cores: a domain, a package, or each package where the source does not say which.
  // Domains may lie within another, which is that of memory for all of them (CXL): the smallest stands for them.
  std::vector<std::size_t> homes(const Cores& cores) const {
    std::vector<std::size_t> nodes;
    for (const std::size_t package : packages_of(machine_, cores)) nodes.push_back(made_.packages[package]);
    if (nodes.size() != 1) return nodes.empty() ? made_.packages : nodes;
    std::size_t fewest = cores_of(machine_.cores[cores.front()].package);
    for (const auto& [of_domain, node] : domains_) {
      if (of_domain.size() >= fewest || !std::ranges::includes(of_domain, cores)) continue;
      fewest = of_domain.size();
      nodes = {node};
    }
    return nodes;
  }

  std::size_t cores_of(std::size_t package) const {
    return static_cast<std::size_t>(std::ranges::count(machine_.cores, package, &Core::package));
  }

  void add_nvlinks() {
    const auto end = [this](NvLink::End kind, std::size_t index) {
      return kind == NvLink::End::kPackage ? std::optional(made_.packages[index]) : made_.devices[index];
    };
    std::map<std::pair<std::size_t, std::size_t>, double> links;
    for (const NvLink& link : machine_.nvlinks) {
      const auto from = end(link.from_kind, link.from), to = end(link.to_kind, link.to);
      if (from && to) links[{*from, *to}] += link.bandwidth;
    }
    for (const auto& [ends, bandwidth] : links) {
      const auto back = links.find({ends.second, ends.first});
      if (ends.first > ends.second && back != links.end()) continue;  // told by the other direction
      const auto& nodes = made_.graph.nodes();
      made_.graph.add_edge({EdgeKind::kNvLink,
                            ends.first,
                            ends.second,
                            {bandwidth, Origin::kAdvertised, "hwloc"},
                            {back == links.end() ? 0 : back->second, Origin::kAdvertised, "hwloc"},
                            fmt::format("NVLink of {} and {}", nodes[ends.first].name, nodes[ends.second].name)});
    }
  }

  void add_ports() {
    made_.network = made_.graph.add_node(NodeKind::kNetwork, "network");
    const auto is_rdma = [](const Device& device) {
      return device.kind == DeviceKind::kNic && !device.rdma_devices.empty();
    };
    const bool rdma = std::any_of(machine_.devices.begin(), machine_.devices.end(), is_rdma);
    for (std::size_t i = 0; i < machine_.devices.size(); ++i) {
      const Device& device = machine_.devices[i];
      made_.carries.push_back(device.kind == DeviceKind::kNic && (!rdma || is_rdma(device)) && !device.rate_is_down);
      if (!made_.carries.back()) continue;
      edge(EdgeKind::kPort, *made_.devices[i], made_.network, table_.nic(device),
           fmt::format("the ports of {}", device.name));
    }
  }

  const Machine& machine_;
  const BandwidthTable& table_;
  MachineGraph made_;
  std::map<Cores, std::size_t> domains_;  // the cores of a domain: node
  std::vector<double> sum_below_;         // of bridges
  std::vector<Bandwidth> widest_below_;
};

}  // namespace

MachineGraph build_graph(const Machine& machine, const BandwidthTable& table) {
  return Builder(machine, table).build();
}

}  // namespace fairlead::topology
