#include "topology/engine_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/index_list.h"
#include "topology/flow.h"
#include "topology/graph_builder.h"
#include "topology/plan.h"

namespace fairlead::topology {
namespace {

using Kind = PlacementWish::Kind;

std::vector<unsigned> usable_pus(const Machine& machine) {
  std::vector<unsigned> pus;
  for (const Core& core : machine.cores) pus.insert(pus.end(), core.usable_pus.begin(), core.usable_pus.end());
  return pus;
}

/// The core of a hardware thread that this process may use.
std::optional<std::size_t> core_of(const Machine& machine, unsigned pu) {
  for (std::size_t i = 0; i < machine.cores.size(); ++i) {
    if (std::ranges::count(machine.cores[i].usable_pus, pu) != 0) return i;
  }
  return std::nullopt;
}

/// The machine with no other NICs than these, for they carry what the plan is for.
Machine with_nics(Machine machine, const std::vector<std::size_t>& nics) {
  for (std::size_t i = 0; i < machine.devices.size(); ++i) {
    Device& device = machine.devices[i];
    if (device.kind == DeviceKind::kNic && std::ranges::count(nics, i) == 0) device.kind = DeviceKind::kOther;
  }
  return machine;
}

class EnginePlanner {
 public:
  EnginePlanner(const Machine& machine, const PlacementWish& wish, const EngineUse& use)
      : machine_(with_nics(machine, use.nics)), made_(build_graph(machine_, BandwidthTable())), wish_(wish), use_(use) {
    plan_.lanes.resize(use.lanes);
    for (const std::size_t nic : use.nics) plan_.shares.push_back({.device = nic});
  }

  Result<EnginePlan> make() {
    Status possible;
    switch (wish_.kind) {
      case Kind::kOff:
        leave_alone("placement is off");
        return std::move(plan_);
      case Kind::kAuto:
        choose();
        break;
      case Kind::kNode:
        possible = take_node();
        break;
      case Kind::kCores:
        possible = take_cores();
        break;
    }
    if (!possible.ok()) return possible;
    share_out();
    remark();
    return std::move(plan_);
  }

 private:
  void leave_alone(const std::string& why) {
    for (LanePlace& lane : plan_.lanes) lane.reason = why;
    plan_.pool_reason = why;
  }

  // ---- auto
  void choose() {
    if (std::string why = nothing_to_choose(); !why.empty()) return leave_alone(why);
    // Where the most can be sent from, and of equal ones that of the cheapest way: beside the NICs. Of these that of
    // the fewest cores: what is local to a whole socket that has others for its parts is CXL or the like.
    double best = -1;
    std::pair<std::int64_t, std::size_t> best_cost;
    for (const Pair& pair : memory_pairs(machine_, "peers")) {
      const std::size_t node = made_.memories[pair.endpoint.index];
      const double rate = max_flow(made_.graph, node, made_.network);
      const std::optional<Route> way = widest_route(made_.graph, node, made_.network);
      const std::pair cost(way ? cost_of(made_.graph, *way) : 0, cores_beside(pair.endpoint.index));
      if (plan_.pool && (rate <= best * (1 + 1e-9)) && (rate < best * (1 - 1e-9) || cost >= best_cost)) continue;
      plan_.pool = pair.endpoint.index;
      best = rate;
      best_cost = cost;
    }
    if (!plan_.pool) return leave_alone("this process may use no memory node that has memory");
    const std::vector<NicUse> nics = nics_from(*plan_.pool);
    plan_.pool_reason = nics.empty() ? "the first that this process may use"
                                     : "the most can be sent from there: " + nics.front().reason + " as " +
                                           machine_.devices[nics.front().device].name;
    plan_.lanes = place_lanes(machine_, by_turns(nics), use_.busy_cpus);
    for (LanePlace& lane : plan_.lanes) lane.shared = lane.core && lane.shared;
  }

  /// Memory without cores is near none, so it counts as that of the most.
  std::size_t cores_beside(std::size_t memory) const {
    const std::size_t count = machine_.memories[memory].cores.size();
    return count == 0 ? machine_.cores.size() + 1 : count;
  }

  /// Empty: there is.
  std::string nothing_to_choose() const {
    if (machine_.memories.size() == 1) return "one NUMA node, so every core and NIC is as near as any other";
    std::set<std::vector<std::size_t>> nodes;
    for (const Memory& memory : machine_.memories) {
      const bool usable = std::ranges::any_of(
          memory.cores, [this](std::size_t core) { return !machine_.cores[core].usable_pus.empty(); });
      if (usable) nodes.insert(memory.cores);
    }
    if (nodes.size() < 2) return "this process may use the cores of one NUMA node alone";
    if (use_.nics.empty()) return "no NIC is in use, so no NUMA node is nearer than another";
    const bool known = std::ranges::any_of(
        use_.nics, [this](std::size_t nic) { return locality_is_known(machine_, machine_.devices[nic]); });
    return known ? "" : "nobody says which socket the NICs in use are at";
  }

  /// What a plan for this memory alone gives them.
  std::vector<NicUse> nics_from(std::size_t memory) const {
    const Pair pair{{.gpu = false, .index = memory}, "peers"};
    Plan plan = make_plan(machine_, made_, {&pair, 1});
    return std::move(plan.placements.front().nics);
  }

  /// A NIC for each lane, in proportion to what they carry (D'Hondt).
  std::vector<std::size_t> by_turns(const std::vector<NicUse>& nics) const {
    std::vector<std::size_t> chosen, seats(nics.size());
    while (!nics.empty() && chosen.size() < use_.lanes) {
      std::size_t next = 0;
      for (std::size_t i = 1; i < nics.size(); ++i) {
        const auto claim = [&](std::size_t n) { return nics[n].rate / static_cast<double>(seats[n] + 1); };
        if (claim(i) > claim(next) * (1 + 1e-9)) next = i;
      }
      ++seats[next];
      chosen.push_back(nics[next].device);
    }
    // Nothing can be sent: beside the first that is known.
    while (chosen.size() < use_.lanes) chosen.push_back(use_.nics.front());
    return chosen;
  }

  // ---- what the user says
  Status take_node() {
    const auto memory = std::ranges::find(machine_.memories, wish_.node, &Memory::os_index);
    std::vector<unsigned> nodes;
    for (const Memory& each : machine_.memories) {
      if (each.allowed) nodes.push_back(each.os_index);
    }
    if (memory == machine_.memories.end() || !memory->allowed) {
      return {Code::kInvalidArgument, fmt::format("placement is 'node={}'; this process may use the NUMA nodes {}",
                                                  wish_.node, to_index_list(nodes))};
    }
    const auto has_memory = [](const Memory& each) { return each.bytes != 0; };
    if (!has_memory(*memory) && std::ranges::any_of(machine_.memories, has_memory)) {
      return {
          Code::kInvalidArgument,
          fmt::format("placement is 'node={}', a NUMA node without memory; name its cores ('cores=LIST'), or another "
                      "node",
                      wish_.node)};
    }
    // A device for the placer to be beside, and no core but the node's.
    Machine own = machine_;
    std::vector<unsigned> pus;
    for (std::size_t core = 0; core < own.cores.size(); ++core) {
      std::vector<unsigned>& usable = own.cores[core].usable_pus;
      if (std::ranges::count(memory->cores, core) == 0) usable.clear();
      pus.insert(pus.end(), usable.begin(), usable.end());
    }
    if (pus.empty()) {
      return {Code::kInvalidArgument,
              fmt::format("placement is 'node={}', and this process may use no core of that node; its CPUs are {}",
                          wish_.node, to_index_list(usable_pus(machine_)))};
    }
    own.devices.push_back({.name = name_of(*memory), .cores = memory->cores});
    plan_.lanes = place_lanes(own, std::vector<std::size_t>(use_.lanes, own.devices.size() - 1), use_.busy_cpus);
    for (LanePlace& lane : plan_.lanes) {
      lane.reason =
          fmt::format("placement is 'node={}'{}", wish_.node, lane.shared ? "; shared, as no core is free" : "");
    }
    plan_.pool = static_cast<std::size_t>(memory - machine_.memories.begin());
    plan_.pool_reason = fmt::format("placement is 'node={}'", wish_.node);
    return {};
  }

  Status take_cores() {
    std::vector<std::size_t> taken(machine_.cores.size()), cores;
    for (const unsigned pu : wish_.cpus) {
      const std::optional<std::size_t> core = core_of(machine_, pu);
      if (!core) {
        return {Code::kInvalidArgument,
                fmt::format("placement is 'cores={}', and CPU {} is none that this process may use, which are {}",
                            to_index_list(wish_.cpus), pu, to_index_list(usable_pus(machine_)))};
      }
      cores.push_back(*core);
    }
    for (std::size_t lane = 0; lane < use_.lanes; ++lane) {
      const std::size_t turn = lane % cores.size();
      plan_.lanes[lane].core = cores[turn];
      plan_.lanes[lane].pu = wish_.cpus[turn];
      ++taken[cores[turn]];
    }
    for (LanePlace& lane : plan_.lanes) {
      lane.shared = taken[*lane.core] > 1;
      lane.reason = fmt::format("placement is 'cores={}'{}", to_index_list(wish_.cpus),
                                lane.shared ? "; shared, as it names fewer cores than there are lanes" : "");
    }
    plan_.pool_reason = "the cores that were given are of several NUMA nodes, or of the only one";
    if (machine_.memories.size() == 1) return {};
    for (std::size_t i = 0; i < machine_.memories.size(); ++i) {
      const Memory& memory = machine_.memories[i];
      const bool beside_all = std::ranges::all_of(
          cores, [&memory](std::size_t core) { return std::ranges::count(memory.cores, core) != 0; });
      if (!memory.allowed || !beside_all || memory.bytes == 0) continue;
      plan_.pool = i;
      plan_.pool_reason = "beside the cores that were given";
      break;
    }
    return {};
  }

  // ---- shares
  void share_out() {
    std::size_t from = 0;
    if (plan_.pool) {
      from = *plan_.pool;
    } else {
      const std::vector<Pair> pairs = memory_pairs(machine_, "peers");
      if (pairs.empty()) return;
      from = pairs.front().endpoint.index;
    }
    for (const NicUse& nic : nics_from(from)) {
      const auto share = std::ranges::find(plan_.shares, nic.device, &NicShare::device);
      if (share == plan_.shares.end()) continue;
      share->rate = nic.rate;
      share->assumed = nic.assumed;
    }
  }

  void remark() {
    const auto pinned = static_cast<double>(
        std::ranges::count_if(plan_.lanes, [](const LanePlace& lane) { return lane.core.has_value(); }));
    if (machine_.cpu_quota > 0 && static_cast<double>(use_.lanes) > machine_.cpu_quota) {
      plan_.remarks.push_back(fmt::format(
          "The cgroup of this process allows {:.3g} processors' worth of time, and there are {} lanes: when "
          "all are busy they are stopped and started. Take fewer lanes, or raise the quota.",
          machine_.cpu_quota, use_.lanes));
    }
    const bool shared = std::ranges::any_of(plan_.lanes, [](const LanePlace& lane) { return lane.shared; });
    if (pinned > 0 && shared && wish_.kind == Kind::kAuto) {
      plan_.remarks.emplace_back("There are fewer free cores than lanes: some share one.");
    }
  }

  const Machine machine_;
  const MachineGraph made_;
  const PlacementWish& wish_;
  const EngineUse& use_;
  EnginePlan plan_;
};

}  // namespace

Result<EnginePlan> plan_engine(const Machine& machine, const PlacementWish& wish, const EngineUse& use) {
  return EnginePlanner(machine, wish, use).make();
}

std::string to_string(const Machine& machine, const EnginePlan& plan) {
  std::string text;
  for (std::size_t i = 0; i < plan.lanes.size(); ++i) {
    const LanePlace& lane = plan.lanes[i];
    if (!lane.core) continue;
    text += fmt::format("{}lane {} on CPU {} ({})", text.empty() ? "" : ", ", i, lane.pu, lane.reason);
  }
  if (text.empty()) text = "no lane is pinned";
  if (text.starts_with("no") && !plan.lanes.empty()) text += fmt::format(" ({})", plan.lanes.front().reason);
  if (!plan.pool) return text + "; the pool is bound to no NUMA node";
  return text + fmt::format("; pool on {} ({})", name_of(machine.memories[*plan.pool]), plan.pool_reason);
}

}  // namespace fairlead::topology
