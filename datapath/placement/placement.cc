#include "datapath/placement/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <utility>

#include "base/index_list.h"
#include "base/placement_wish.h"
#include "base/system/affinity.h"
#include "fairlead/log.h"
#include "topology/own_machine.h"

namespace fairlead::datapath {
namespace {

using topology::Machine;

constexpr int kMostTries = 16;  // others claim at the same moment

constexpr double kAlike = 1.01;

std::string_view kind_of(std::string_view transport) { return transport.substr(0, transport.find(':')); }

/// Those that lanes of others are on.
std::vector<unsigned> taken_cpus(const Machine& machine, const CoreClaims& claims) {
  std::vector<unsigned> taken;
  for (const topology::Core& core : machine.cores) {
    std::ranges::copy_if(core.pus, std::back_inserter(taken), [&claims](unsigned cpu) { return claims.is_taken(cpu); });
  }
  return taken;
}

}  // namespace

Status Placement::plan(const EngineConfig& config, const std::vector<UsedTransport>& transports) {
  const Result<PlacementWish> wish = parse_placement(config.placement);
  if (!wish) return wish.error();
  Result<Machine> machine =
      wish->kind == PlacementWish::Kind::kOff ? Result<Machine>(Machine()) : topology::own_machine();
  if (machine) return plan(config, transports, {.machine = *std::move(machine), .addresses = local_addresses()});
  if (wish->kind != PlacementWish::Kind::kAuto) return machine.error();
  // Nothing is known of the machine, so nothing is chosen.
  report_.lanes.assign(config.lanes, {.pinned = false, .cpus = {}, .reason = machine.error().message()});
  report_.pool_reason = machine.error().message();
  return {};
}

Status Placement::plan(const EngineConfig& config, const std::vector<UsedTransport>& transports, Surroundings around) {
  const Result<PlacementWish> wish = parse_placement(config.placement);
  if (!wish) return wish.error();
  machine_ = std::move(around.machine);
  report_.lanes.resize(config.lanes);
  if (wish->kind == PlacementWish::Kind::kOff) {
    for (LanePlacement& lane : report_.lanes) lane.reason = "placement is off";
    report_.pool_reason = "placement is off";
    return {};
  }
  const std::vector<std::vector<std::size_t>> nics = nics_of(transports, around.addresses, around.root, &machine_);
  topology::EngineUse use{.lanes = config.lanes};
  for (const std::vector<std::size_t>& of_one : nics) use.nics.insert(use.nics.end(), of_one.begin(), of_one.end());
  std::ranges::sort(use.nics);
  const auto [first, last] = std::ranges::unique(use.nics);
  use.nics.erase(first, last);
  const bool has_threads = config.progress != Progress::kApplication;
  if (has_threads) claims_.emplace(around.claims);
  if (Status planned = plan_around_others(*wish, std::move(use), around.claims); !planned.ok()) return planned;
  for (std::size_t i = 0; i < plan_.lanes.size(); ++i) {
    report_.lanes[i].reason =
        has_threads ? plan_.lanes[i].reason : "lanes have no threads: the application drives (Progress::kApplication)";
  }
  // Lanes' threads come from this one.
  const bool pins =
      std::ranges::any_of(plan_.lanes, [](const topology::LanePlace& lane) { return lane.core.has_value(); });
  if (has_threads && pins) elsewhere_ = affinity_of(::pthread_self());
  std::optional<unsigned> node;
  if (plan_.pool) node = machine_.memories[*plan_.pool].os_index;
  pool_ = std::make_shared<PoolPlacement>(node);
  report_.pool_node = node;
  report_.pool_reason = plan_.pool_reason;
  report_.remarks = plan_.remarks;
  share_out(transports, nics);
  return {};
}

/// Until every CPU of the plan could be claimed, or the plan shares cores, which is as good as it gets.
Status Placement::plan_around_others(const PlacementWish& wish, topology::EngineUse use, const std::string& claims) {
  for (int tries = 0; tries < kMostTries; ++tries) {
    if (claims_) use.busy_cpus = taken_cpus(machine_, *claims_);
    Result<topology::EnginePlan> planned = topology::plan_engine(machine_, wish, use);
    if (!planned) return planned.error();
    plan_ = *std::move(planned);
    bool claimed = true;
    for (const topology::LanePlace& lane : plan_.lanes) {
      if (lane.core && claims_ && !claims_->claim(lane.pu)) claimed = claimed && lane.shared;
    }
    if (claimed || wish.kind == PlacementWish::Kind::kCores) return {};
    claims_.emplace(claims);
  }
  return {};
}

void Placement::share_out(const std::vector<UsedTransport>& transports,
                          const std::vector<std::vector<std::size_t>>& nics) {
  for (std::size_t t = 0; t < transports.size(); ++t) {
    PlannedShare share{.transport = transports[t].name, .nics = {}};
    for (const topology::NicShare& nic : plan_.shares) {
      if (std::ranges::count(nics[t], nic.device) == 0) continue;
      share.nics.push_back(machine_.devices[nic.device].name);
      share.bytes_per_second += nic.rate;
      share.assumed = share.assumed || nic.assumed;
    }
    report_.shares.push_back(std::move(share));
  }
  for (const PlannedShare& share : report_.shares) {
    double least = share.bytes_per_second, most = least;
    bool nothing = least == 0;
    for (const PlannedShare& other : report_.shares) {
      if (kind_of(other.transport) != kind_of(share.transport)) continue;
      nothing = nothing || other.bytes_per_second == 0;
      if (other.bytes_per_second > 0)
        least = least > 0 ? std::min(least, other.bytes_per_second) : other.bytes_per_second;
      most = std::max(most, other.bytes_per_second);
    }
    const bool differ = most > 0 && (nothing || most > least * kAlike);
    if (differ) weights_[share.transport] = std::max(1.0, share.bytes_per_second / least);
  }
}

double Placement::weight_of(std::string_view transport) const {
  const auto found = weights_.find(transport);
  return found == weights_.end() ? 2 : found->second;
}

void Placement::pin(std::size_t lane, std::optional<pthread_t> thread) {
  LanePlacement& placed = report_.lanes[lane];
  if (!thread) return;
  const bool planned = lane < plan_.lanes.size() && plan_.lanes[lane].core;
  if (planned) {
    const unsigned cpu = plan_.lanes[lane].pu;
    const Status pinned = set_affinity(*thread, {&cpu, 1});
    placed.cpus = affinity_of(*thread);
    placed.pinned = pinned.ok() && placed.cpus == std::vector{cpu};
    if (placed.pinned) return;
    const std::string why = pinned.ok() ? fmt::format("lane {} was pinned to CPU {}, and may run on {}", lane, cpu,
                                                      to_index_list(placed.cpus))
                                        : std::string(pinned.message());
    placed.reason = "not pinned: " + why;
    log(LogLevel::kWarning, "placement: " + why);
    return;
  }
  placed.cpus = affinity_of(*thread);
}

void Placement::say() const {
  const bool chosen = std::ranges::any_of(report_.lanes, &LanePlacement::pinned) || report_.pool_node;
  static std::atomic<bool> said_that_nothing_is{false};
  if (chosen || !said_that_nothing_is.exchange(true)) log(LogLevel::kInfo, "placement: " + report_.to_string());
  for (const std::string& remark : report_.remarks) log(LogLevel::kInfo, "placement: " + remark);
}

PlacementReport Placement::report() const {
  PlacementReport report = report_;
  const PoolPlacement::Pages pages = pool_->look();
  report.pool_pages.assign(pages.on_node.begin(), pages.on_node.end());
  if (!pages.refused.ok()) report.remarks.emplace_back(pages.refused.message());
  return report;
}

}  // namespace fairlead::datapath
