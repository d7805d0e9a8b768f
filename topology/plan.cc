#include "topology/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>

namespace fairlead::topology {
namespace {

constexpr double kFull = 1 - 1e-6;  // of an edge, beyond which it counts as used up

bool passes(const Route& route, Hop hop) {
  return std::find(route.hops.begin(), route.hops.end(), hop) != route.hops.end();
}

class Planner {
 public:
  Planner(const Machine& machine, const MachineGraph& made, std::span<const Pair> pairs)
      : machine_(machine), made_(made), graph_(made.graph), pairs_(pairs) {}

  Plan make() {
    std::vector<std::size_t> sources;
    for (const Pair& pair : pairs_) sources.push_back(node_of(pair.endpoint));
    allocation_ = share(graph_, sources, made_.network);
    load_.assign(graph_.edges().size(), {});
    for (const std::vector<Route>& routes : allocation_.routes) {
      for (const Route& route : routes) {
        for (const Hop hop : route.hops) load_[hop.edge][hop.forward] += route.rate;
      }
    }
    for (std::size_t i = 0; i < pairs_.size(); ++i) plan_.placements.push_back(place(i));
    while (spread_assumptions()) {
    }
    place_cores();
    for (Placement& placement : plan_.placements) choose_pool(&placement);
    remark();
    return std::move(plan_);
  }

 private:
  std::size_t node_of(Endpoint endpoint) const {
    return endpoint.gpu ? *made_.devices[endpoint.index] : made_.memories[endpoint.index];
  }

  Placement place(std::size_t i) {
    Placement placement{.pair = pairs_[i], .nics = {}, .passed = {}, .pool = {}, .pool_reason = {}};
    const std::size_t source = node_of(pairs_[i].endpoint);
    placement.alone = max_flow(graph_, source, made_.network);
    placement.rate = allocation_.rates[i];
    std::map<std::size_t, std::vector<Route>> by_nic;
    for (const Route& route : allocation_.routes[i]) by_nic[nic_of(route)].push_back(route);
    for (std::size_t device = 0; device < machine_.devices.size(); ++device) {
      if (machine_.devices[device].kind != DeviceKind::kNic) continue;
      if (const auto found = by_nic.find(device); found != by_nic.end()) {
        placement.nics.push_back(use(source, device, std::move(found->second)));
      } else {
        placement.passed.push_back({device, why_not(i, device)});
      }
    }
    std::stable_sort(placement.nics.begin(), placement.nics.end(), [this](const NicUse& a, const NicUse& b) {
      if (a.width > b.width * (1 + 1e-9) || b.width > a.width * (1 + 1e-9)) return a.width > b.width;
      return cost_of(graph_, a.routes.front()) < cost_of(graph_, b.routes.front());
    });
    return placement;
  }

  std::size_t nic_of(const Route& route) const {
    return graph_.nodes()[graph_.other_end(route.hops.back().edge, made_.network)].index;
  }

  NicUse use(std::size_t source, std::size_t device, std::vector<Route> routes) {
    NicUse made{.device = device, .routes = std::move(routes), .lane = {}, .reason = {}, .limit = {}, .limiting = {}};
    for (const Route& route : made.routes) made.rate += route.rate;
    if (const auto widest = widest_route(graph_, source, *made_.devices[device])) {
      made.width = std::min(widest->rate, graph_.edges()[port_of(device)].forward.bytes_per_second);
    }
    made.reason = nearness(source, made.routes.front());
    for (const Hop hop : made.routes.front().hops) {
      const Bandwidth& bandwidth = bandwidth_of(graph_, hop);
      if (load_[hop.edge][hop.forward] < bandwidth.bytes_per_second * kFull) continue;
      made.limit = fmt::format("{}, {}{}", graph_.edges()[hop.edge].name, to_string(bandwidth), sharers(source, hop));
      made.limiting = hop;
      made.assumed = bandwidth.origin == Origin::kAssumed;
      break;
    }
    return made;
  }

  // What a rate that is assumed leaves of a step is as uncertain. Whether anything was marked anew.
  bool spread_assumptions() {
    bool changed = false;
    for (Placement& placement : plan_.placements) {
      for (NicUse& nic : placement.nics) {
        if (nic.assumed || !nic.limiting || !passes_assumed(*nic.limiting)) continue;
        nic.assumed = changed = true;
      }
    }
    return changed;
  }

  bool passes_assumed(Hop hop) const {
    for (const Placement& placement : plan_.placements) {
      for (const NicUse& nic : placement.nics) {
        if (!nic.assumed) continue;
        if (std::any_of(nic.routes.begin(), nic.routes.end(), [hop](const Route& route) { return passes(route, hop); }))
          return true;
      }
    }
    return false;
  }

  // Who else sends along a step.
  std::string sharers(std::size_t source, Hop hop) const {
    std::set<std::string> names;
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      if (node_of(pairs_[i].endpoint) == source) continue;
      for (const Route& route : allocation_.routes[i]) {
        if (passes(route, hop)) names.insert(name_of(machine_, pairs_[i].endpoint));
      }
    }
    return names.empty() ? "" : fmt::format(", with {}", fmt::join(names, ", "));
  }

  // How near the end of a route is: by the highest thing that it passes.
  std::string nearness(std::size_t source, const Route& route) const {
    std::size_t node = source, bridge = made_.network;
    bool socket = false, mesh = false, package = false;
    for (const Hop hop : route.hops) {
      node = end_of(graph_, hop);
      const NodeKind kind = graph_.nodes()[node].kind;
      socket = socket || graph_.edges()[hop.edge].kind == EdgeKind::kSocket;
      mesh = mesh || graph_.edges()[hop.edge].kind == EdgeKind::kMesh;
      package = package || kind == NodeKind::kPackage || kind == NodeKind::kDomain;
      // The first bridges of a way up and down again are higher and higher; what matters is the topmost.
      if (kind == NodeKind::kHostBridge || (kind == NodeKind::kPciBridge && is_above(node, bridge))) bridge = node;
    }
    if (socket) return "across a link between sockets, as nearer NICs cannot carry it all";
    if (mesh) return "on the same socket, beside another NUMA node";
    if (package) return machine_.packages.size() == 1 ? "on the only socket" : unknown_or("on the same socket", route);
    if (bridge == made_.network) return "linked directly";
    return graph_.nodes()[bridge].kind == NodeKind::kHostBridge
               ? fmt::format("behind the same {}", graph_.nodes()[bridge].name)
               : fmt::format("behind the same PCIe switch ({})", graph_.nodes()[bridge].name);
  }

  bool is_above(std::size_t node, std::size_t other) const {
    if (graph_.nodes()[other].kind == NodeKind::kHostBridge) return false;
    if (graph_.nodes()[other].kind != NodeKind::kPciBridge) return true;
    for (auto up = machine_.bridges[graph_.nodes()[other].index].parent; up; up = machine_.bridges[*up].parent) {
      if (*up == graph_.nodes()[node].index) return true;
    }
    return false;
  }

  std::string unknown_or(std::string words, const Route& route) const {
    const Device& nic = machine_.devices[nic_of(route)];
    return locality_is_known(machine_, nic) ? words : "near no socket that anybody says";
  }

  std::string why_not(std::size_t pair, std::size_t device) const {
    const Device& nic = machine_.devices[device];
    if (!made_.carries[device]) {
      return nic.rate_is_down ? "its ports are down" : "it has no RDMA, and other NICs of this machine have";
    }
    const std::size_t source = node_of(pairs_[pair].endpoint);
    const std::optional<Route> route = widest_route(graph_, source, *made_.devices[device]);
    if (!route) return "no way leads there";
    const bool across = std::any_of(route->hops.begin(), route->hops.end(),
                                    [this](Hop hop) { return graph_.edges()[hop.edge].kind == EdgeKind::kSocket; });
    const std::string where = across ? "across a link between sockets; " : "";
    for (const Hop hop : route->hops) {
      const Bandwidth& bandwidth = bandwidth_of(graph_, hop);
      if (load_[hop.edge][hop.forward] < bandwidth.bytes_per_second * kFull) continue;
      return fmt::format("{}{} has no more to give ({}{})", where, graph_.edges()[hop.edge].name, to_string(bandwidth),
                         sharers(source, hop));
    }
    const double ports = graph_.edges()[port_of(device)].forward.bytes_per_second;
    if (load_[port_of(device)][true] >= ports * kFull) {
      return fmt::format("{}its ports are used up by {}", where, users_of(device));
    }
    return fmt::format("{}nearer NICs carry all that can be sent", where);
  }

  std::size_t port_of(std::size_t device) const {
    for (const std::size_t edge : graph_.edges_at(*made_.devices[device])) {
      if (graph_.edges()[edge].kind == EdgeKind::kPort) return edge;
    }
    return 0;  // not reached: asked of NICs with an edge to the network alone
  }

  std::string users_of(std::size_t device) const {
    std::set<std::string> names;
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      for (const Route& route : allocation_.routes[i]) {
        if (nic_of(route) == device) names.insert(name_of(machine_, pairs_[i].endpoint));
      }
    }
    return fmt::format("{}", fmt::join(names, ", "));
  }

  void place_cores() {
    std::vector<std::size_t> nics;
    for (const Placement& placement : plan_.placements) {
      for (const NicUse& nic : placement.nics) nics.push_back(nic.device);
    }
    std::vector<LanePlace> places = place_lanes(machine_, nics);
    std::set<std::size_t> cores;
    std::size_t next = 0;
    for (Placement& placement : plan_.placements) {
      for (NicUse& nic : placement.nics) {
        nic.lane = std::move(places[next++]);
        if (nic.lane.core) cores.insert(*nic.lane.core);
      }
    }
    if (machine_.cpu_quota > 0 && static_cast<double>(cores.size()) > machine_.cpu_quota) {
      plan_.remarks.push_back(
          fmt::format("The cgroup of this process allows {:.3g} processors' worth of time, and {} lanes would be busy: "
                      "they would be "
                      "stopped and started. Let fewer poll, or raise the quota.",
                      machine_.cpu_quota, cores.size()));
    }
  }

  // Where staging and pool memory should be: beside the NICs that read it.
  void choose_pool(Placement* placement) const {
    const Endpoint endpoint = placement->pair.endpoint;
    if (!endpoint.gpu && machine_.memories[endpoint.index].allowed) {
      placement->pool = endpoint.index;
      placement->pool_reason = "the data is there";
      return;
    }
    const Device* const near = !placement->nics.empty() ? &machine_.devices[placement->nics.front().device]
                               : endpoint.gpu           ? &machine_.devices[endpoint.index]
                                                        : nullptr;
    std::size_t most = 0;
    for (std::size_t i = 0; i < machine_.memories.size(); ++i) {
      const Memory& memory = machine_.memories[i];
      if (!memory.allowed || memory.bytes == 0) continue;
      std::vector<std::size_t> both;
      if (near != nullptr) {
        std::set_intersection(memory.cores.begin(), memory.cores.end(), near->cores.begin(), near->cores.end(),
                              std::back_inserter(both));
      }
      if (placement->pool && both.size() <= most) continue;
      placement->pool = i;
      most = both.size();
    }
    if (!placement->pool) {
      placement->pool_reason = "this process may use no memory node";
    } else if (machine_.memories.size() == 1) {
      placement->pool_reason = "the only NUMA node";
    } else if (near == nullptr || most == 0) {
      placement->pool_reason = "the first that this process may use";
    } else {
      placement->pool_reason = locality_is_known(machine_, *near)
                                   ? "beside " + near->name
                                   : "the first; nobody says which socket " + near->name + " is at";
    }
  }

  void remark() {
    if (machine_.memories.size() == 1) {
      plan_.remarks.emplace_back("One NUMA node: every core and every NIC is local to all memory.");
    }
    if (count_of(machine_, DeviceKind::kNic) == 0) {
      plan_.remarks.emplace_back(
          "No NIC: nothing can be sent. hwloc sees no PCI devices where /sys is not mounted, and "
          "an XML has none unless lstopo wrote it with them.");
    }
    if (std::all_of(machine_.cores.begin(), machine_.cores.end(),
                    [](const Core& core) { return core.usable_pus.empty(); })) {
      plan_.remarks.emplace_back("The cpuset and affinity leave no core to use.");
    }
    if (std::any_of(plan_.placements.begin(), plan_.placements.end(), is_assumed)) {
      plan_.remarks.emplace_back(
          "Rates marked with ~ follow from bandwidths that are assumed; --bandwidth NAME=GB/s sets "
          "them.");
    }
  }

  const Machine& machine_;
  const MachineGraph& made_;
  const Graph& graph_;
  const std::span<const Pair> pairs_;
  Allocation allocation_;
  std::vector<std::array<double, 2>> load_;  // of edges: backward, forward
  Plan plan_;
};

}  // namespace

Result<Endpoint> find_endpoint(const Machine& machine, std::string_view name) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < machine.memories.size(); ++i) {
    names.push_back(name_of(machine.memories[i]));
    if (names.back() == name) return Endpoint{.gpu = false, .index = i};
  }
  for (std::size_t i = 0; i < machine.devices.size(); ++i) {
    const Device& device = machine.devices[i];
    if (device.kind != DeviceKind::kGpu) continue;
    names.push_back(device.name);
    if (name == device.name || name == device.bus_id) return Endpoint{.gpu = true, .index = i};
  }
  return Status(Code::kNotFound, fmt::format("no memory or GPU '{}'; there is {}", name, fmt::join(names, ", ")));
}

std::string name_of(const Machine& machine, Endpoint endpoint) {
  return endpoint.gpu ? machine.devices[endpoint.index].name : name_of(machine.memories[endpoint.index]);
}

bool is_assumed(const Placement& placement) {
  return std::any_of(placement.nics.begin(), placement.nics.end(), [](const NicUse& nic) { return nic.assumed; });
}

std::vector<Pair> memory_pairs(const Machine& machine, const std::string& peer) {
  // A node without memory has nothing to send; a file that gives no sizes at all says nothing of that.
  const bool sizes = std::any_of(machine.memories.begin(), machine.memories.end(),
                                 [](const Memory& memory) { return memory.bytes > 0; });
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < machine.memories.size(); ++i) {
    const Memory& memory = machine.memories[i];
    if (memory.allowed && (memory.bytes > 0 || !sizes)) pairs.push_back({{.gpu = false, .index = i}, peer});
  }
  return pairs;
}

std::vector<Pair> gpu_pairs(const Machine& machine, const std::string& peer) {
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < machine.devices.size(); ++i) {
    if (machine.devices[i].kind == DeviceKind::kGpu) pairs.push_back({{.gpu = true, .index = i}, peer});
  }
  return pairs;
}

Plan make_plan(const Machine& machine, const MachineGraph& made, std::span<const Pair> pairs) {
  return Planner(machine, made, pairs).make();
}

}  // namespace fairlead::topology
