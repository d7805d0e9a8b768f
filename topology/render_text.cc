#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "base/index_list.h"
#include "base/printable.h"
#include "topology/render.h"

namespace fairlead::topology {
namespace {

std::string counted(std::size_t count, const char* thing) {
  const bool es = std::string_view(thing).ends_with("ch");
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : es ? "es" : "s");
}

class TreeWriter {
 public:
  TreeWriter(const Machine& machine, const MachineGraph& made) : machine_(machine), graph_(made.graph), made_(made) {}

  std::string write() {
    head();
    for (std::size_t i = 0; i < machine_.packages.size(); ++i) package(i);
    shared_parts();
    links();
    for (const std::string& remark : machine_.remarks) line(0, printable(remark));
    return std::move(out_);
  }

 private:
  void line(std::size_t depth, std::string_view text) {
    fmt::format_to(std::back_inserter(out_), "{:{}}{}\n", "", 2 * depth, text);
  }

  void head() {
    std::uint64_t bytes = 0;
    for (const Memory& memory : machine_.memories) bytes += memory.bytes;
    std::size_t sockets = 0;
    for (const Package& package : machine_.packages) sockets += package.sockets.size();
    std::string text = fmt::format("{}: {}, {}, {}, {}, {}", printable(machine_.name), counted(sockets, "socket"),
                                   counted(machine_.cores.size(), "core"),
                                   counted(machine_.memories.size(), "NUMA node") + " with " + to_binary_size(bytes),
                                   counted(count_of(machine_, DeviceKind::kNic), "NIC"),
                                   counted(count_of(machine_, DeviceKind::kGpu), "GPU"));
    if (const std::size_t count = count_of(machine_, DeviceKind::kNvSwitch); count > 0) {
      text += ", " + counted(count, "NVSwitch");
    }
    line(0, text);
    std::string caches;
    for (const Cache& cache : machine_.caches) {
      caches += fmt::format("{}{} x L{} {}", caches.empty() ? "" : ", ", cache.count, cache.level,
                            to_binary_size(cache.bytes));
    }
    if (!caches.empty()) line(1, "Caches: " + caches);
    if (machine_.cpu_quota > 0) line(1, fmt::format("Quota of the cgroup: {:.3g} processors", machine_.cpu_quota));
  }

  void package(std::size_t index) {
    const Package& package = machine_.packages[index];
    std::string name = name_of(package);
    name.front() = 'S';
    line(1, fmt::format("{}{}{}", name, package.model.empty() ? "" : "  ", printable(package.model)));
    cores(index);
    for (std::size_t i = 0; i < machine_.memories.size(); ++i) {
      if (packages_of(machine_, machine_.memories[i].cores) == std::vector{index}) memory(2, i);
    }
    parts(2, std::vector{index});
  }

  void cores(std::size_t package) {
    std::vector<unsigned> pus, barred, isolated;
    std::size_t count = 0;
    for (const Core& core : machine_.cores) {
      if (core.package != package) continue;
      ++count;
      pus.insert(pus.end(), core.pus.begin(), core.pus.end());
      for (const unsigned pu : core.pus) {
        if (std::find(core.usable_pus.begin(), core.usable_pus.end(), pu) == core.usable_pus.end())
          barred.push_back(pu);
      }
      if (core.isolated) isolated.insert(isolated.end(), core.pus.begin(), core.pus.end());
    }
    std::string text = fmt::format("{}: PUs {}", counted(count, "core"), to_index_list(pus));
    if (!barred.empty()) text += "; not for this process: " + to_index_list(barred);
    if (!isolated.empty()) text += "; isolated: " + to_index_list(isolated);
    line(2, text);
  }

  void memory(std::size_t depth, std::size_t index) {
    const Memory& memory = machine_.memories[index];
    std::string text = fmt::format("{}  {}{}{}", name_of(memory), to_binary_size(memory.bytes),
                                   memory.kind.empty() ? "" : " ", printable(memory.kind));
    for (const std::size_t edge : graph_.edges_at(made_.memories[index])) {
      text += "  " + to_string(graph_.edges()[edge].forward);
      break;
    }
    if (memory.latency_ns > 0) text += fmt::format("  {:.0f} ns", memory.latency_ns);
    if (!memory.allowed) text += "  not for this process";
    std::vector<unsigned> pus;
    for (const std::size_t core : memory.cores) {
      pus.insert(pus.end(), machine_.cores[core].pus.begin(), machine_.cores[core].pus.end());
    }
    if (machine_.memories.size() > machine_.packages.size()) text += "  local to PUs " + to_index_list(pus);
    line(depth, text);
  }

  // Host bridges and devices without one that are local to exactly these packages.
  void parts(std::size_t depth, const std::vector<std::size_t>& packages) {
    for (std::size_t i = 0; i < machine_.bridges.size(); ++i) {
      if (!machine_.bridges[i].parent && packages_of(machine_, machine_.bridges[i].cores) == packages) bridge(depth, i);
    }
    for (std::size_t i = 0; i < machine_.devices.size(); ++i) {
      if (!machine_.devices[i].bridge && packages_of(machine_, machine_.devices[i].cores) == packages) device(depth, i);
    }
  }

  void shared_parts() {
    const std::size_t before = out_.size();
    const auto is_shared = [this](const std::vector<std::size_t>& cores) {
      return packages_of(machine_, cores).size() != 1;
    };
    for (std::size_t i = 0; i < machine_.memories.size(); ++i) {
      if (is_shared(machine_.memories[i].cores)) memory(2, i);
    }
    for (std::size_t i = 0; i < machine_.bridges.size(); ++i) {
      if (!machine_.bridges[i].parent && is_shared(machine_.bridges[i].cores)) bridge(2, i);
    }
    for (std::size_t i = 0; i < machine_.devices.size(); ++i) {
      if (!machine_.devices[i].bridge && is_shared(machine_.devices[i].cores)) device(2, i);
    }
    if (out_.size() != before) out_.insert(before, "  Of no one socket, or nobody says of which\n");
  }

  void bridge(std::size_t depth, std::size_t index) {
    const Bridge& bridge = machine_.bridges[index];
    if (!bridge.parent) {
      line(depth, "Host bridge " + bridge.bus_id);
    } else {
      std::string link;
      for (const std::size_t edge : graph_.edges_at(made_.bridges[index])) {
        if (graph_.edges()[edge].to == made_.bridges[index]) link = to_string(graph_.edges()[edge].forward);
      }
      line(depth, fmt::format("Bridge {}  {}", bridge.bus_id, link));
    }
    for (std::size_t i = index + 1; i < machine_.bridges.size(); ++i) {
      if (machine_.bridges[i].parent == index) this->bridge(depth + 1, i);
    }
    for (std::size_t i = 0; i < machine_.devices.size(); ++i) {
      if (machine_.devices[i].bridge == index) device(depth + 1, i);
    }
  }

  void device(std::size_t depth, std::size_t index) {
    const Device& device = machine_.devices[index];
    std::string text;
    switch (device.kind) {
      case DeviceKind::kNic:
        text = "NIC ";
        break;
      case DeviceKind::kGpu:
        text = "GPU ";
        break;
      case DeviceKind::kNvSwitch:
        text = "NVSwitch ";
        break;
      case DeviceKind::kOther:
        text = "PCI ";
        break;
    }
    text += printable(device.name);
    if (!device.bus_id.empty() && device.name != device.bus_id) text += "  " + device.bus_id;
    std::vector<std::string> names;
    for (const auto* list : {&device.rdma_devices, &device.net_devices, &device.other_devices}) {
      for (const std::string& name : *list) {
        if (name != device.name) names.push_back(printable(name));
      }
    }
    if (!names.empty()) text += fmt::format(" ({})", fmt::join(names, ", "));
    if (made_.devices[index]) text += "  " + figures(index);
    if (!device.model.empty()) text += "  " + printable(device.model);
    line(depth, text);
  }

  std::string figures(std::size_t index) {
    std::string link, ports;
    for (const std::size_t at : graph_.edges_at(*made_.devices[index])) {
      const Edge& edge = graph_.edges()[at];
      if (edge.kind == EdgeKind::kPci || edge.kind == EdgeKind::kRoot) link = "link " + to_string(edge.forward);
      if (edge.kind == EdgeKind::kPort) ports = ", ports " + to_string(edge.forward);
    }
    if (machine_.devices[index].kind == DeviceKind::kNic) {
      if (machine_.devices[index].rate_is_down) ports = ", ports down";
      if (ports.empty()) ports = ", not planned with: no RDMA";
    }
    return link + ports;
  }

  void links() {
    for (const Edge& edge : graph_.edges()) {
      if (edge.kind != EdgeKind::kSocket && edge.kind != EdgeKind::kNvLink) continue;
      std::string text = fmt::format("{} - {}  {}{}", graph_.nodes()[edge.from].name, graph_.nodes()[edge.to].name,
                                     edge.kind == EdgeKind::kNvLink ? "NVLink " : "", to_string(edge.forward));
      if (edge.forward.bytes_per_second != edge.backward.bytes_per_second) {
        text += ", back " + to_string(edge.backward);
      }
      line(1, text);
    }
  }

  const Machine& machine_;
  const Graph& graph_;
  const MachineGraph& made_;
  std::string out_;
};

std::string lane_of(const Machine& machine, const LanePlace& lane) {
  if (!lane.core) return lane.reason;
  return fmt::format("lane on core {} (PU {}): {}", *lane.core, lane.pu, printable(lane.reason)) +
         (machine.cores[*lane.core].pus.size() > 1 && lane.shared ? " (another thread of it)" : "");
}

// The lines of a placement that a plan and an explanation have in common.
void write_placement(const Machine& machine, const Placement& placement, std::string* out) {
  const auto to = std::back_inserter(*out);
  const char* const mark = is_assumed(placement) ? "~" : "";
  fmt::format_to(to, "{} -> {}  {}{}", name_of(machine, placement.pair.endpoint), printable(placement.pair.peer), mark,
                 to_gigabytes_per_second(placement.rate));
  if (placement.alone > placement.rate * (1 + 1e-6)) {
    fmt::format_to(to, ", alone {}{}", mark, to_gigabytes_per_second(placement.alone));
  }
  if (placement.pool) {
    fmt::format_to(to, "; pool in {}: {}\n", name_of(machine.memories[*placement.pool]),
                   printable(placement.pool_reason));
  } else {
    fmt::format_to(to, "; no pool: {}\n", placement.pool_reason);
  }
  if (placement.nics.empty())
    fmt::format_to(to, "  no NIC{}\n", placement.passed.empty() ? "" : " that could carry it");
  std::size_t longest = 0;
  for (const NicUse& nic : placement.nics) longest = std::max(longest, machine.devices[nic.device].name.size());
  for (const NicUse& nic : placement.nics) {
    const double part = placement.rate > 0 ? 100 * nic.rate / placement.rate : 0;
    fmt::format_to(to, "  {:<{}} {:>10} {:>4.0f} %  {}{}{}\n", printable(machine.devices[nic.device].name), longest,
                   (nic.assumed ? "~" : "") + to_gigabytes_per_second(nic.rate), part, nic.reason,
                   nic.limit.empty() ? "" : "; limited by ", printable(nic.limit));
    fmt::format_to(to, "  {:<{}} {}\n", "", longest, lane_of(machine, nic.lane));
  }
}

}  // namespace

std::string render_tree(const Machine& machine, const MachineGraph& made) { return TreeWriter(machine, made).write(); }

std::string render_plan(const Machine& machine, const Plan& plan, const std::string& title) {
  std::string out = title + "\n";
  for (const Placement& placement : plan.placements) {
    write_placement(machine, placement, &out);
    if (!placement.passed.empty()) {
      fmt::format_to(std::back_inserter(out), "  not over {}: --explain {} {} says why\n",
                     counted(placement.passed.size(), "other NIC"), name_of(machine, placement.pair.endpoint),
                     printable(placement.pair.peer));
    }
  }
  if (plan.placements.empty()) out += "  nothing to place\n";
  return out;
}

std::vector<std::string_view> remarks_of(std::span<const Plan* const> plans) {
  std::vector<std::string_view> all;
  for (const Plan* plan : plans) {
    for (const std::string& remark : plan->remarks) {
      if (std::ranges::find(all, remark) == all.end()) all.push_back(remark);
    }
  }
  return all;
}

std::string render_remarks(std::span<const Plan* const> plans) {
  std::string out;
  for (const std::string_view remark : remarks_of(plans)) fmt::format_to(std::back_inserter(out), "{}\n", remark);
  return out;
}

std::string render_explanation(const Machine& machine, const MachineGraph& made, const Placement& placement) {
  std::string out;
  const auto to = std::back_inserter(out);
  write_placement(machine, placement, &out);
  for (const NicUse& nic : placement.nics) {
    for (const Route& route : nic.routes) {
      fmt::format_to(to, "Way to {}, {}:\n", printable(machine.devices[nic.device].name),
                     to_gigabytes_per_second(route.rate));
      for (const Hop hop : route.hops) {
        fmt::format_to(to, "  to {:<28} {}\n", printable(made.graph.nodes()[end_of(made.graph, hop)].name),
                       to_string(bandwidth_of(made.graph, hop)));
      }
    }
  }
  if (!placement.passed.empty()) out += "Not used:\n";
  for (const NicPassed& nic : placement.passed) {
    fmt::format_to(to, "  {}: {}\n", printable(machine.devices[nic.device].name), printable(nic.reason));
  }
  return out;
}

}  // namespace fairlead::topology
