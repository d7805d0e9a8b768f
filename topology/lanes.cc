#include "topology/lanes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

namespace fairlead::topology {
namespace {

enum Nearness { kBeside, kSameSocket, kAnywhere, kNearnesses };

std::vector<std::size_t> usable_cores(const Machine& machine, bool* isolated) {
  std::vector<std::size_t> cores, others;
  for (std::size_t i = 0; i < machine.cores.size(); ++i) {
    if (machine.cores[i].usable_pus.empty()) continue;
    (machine.cores[i].isolated ? others : cores).push_back(i);
  }
  *isolated = cores.empty();
  return cores.empty() ? others : cores;
}

Nearness nearness(const Machine& machine, const Device& nic, std::size_t core) {
  if (std::binary_search(nic.cores.begin(), nic.cores.end(), core)) return kBeside;
  const std::vector<std::size_t> packages = packages_of(machine, nic.cores);
  const std::size_t package = machine.cores[core].package;
  return std::binary_search(packages.begin(), packages.end(), package) ? kSameSocket : kAnywhere;
}

class Placer {
 public:
  Placer(const Machine& machine, const std::vector<std::size_t>& nics, const std::vector<unsigned>& busy_cpus)
      : machine_(machine), nics_(nics) {
    usable_ = usable_cores(machine, &isolated_);
    for (const unsigned pu : busy_cpus) ++load_of_pu_[pu];
    for (const Core& core : machine.cores) load_.push_back(load_on(core));
    most_ = load_.empty() ? 0 : *std::max_element(load_.begin(), load_.end());
    places_.resize(nics.size());
    // Who has few cores to choose from chooses first, so that nobody who could go elsewhere takes these.
    order_.resize(nics.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::stable_sort(order_.begin(), order_.end(), [this](std::size_t a, std::size_t b) {
      return machine_.devices[nics_[a]].cores.size() < machine_.devices[nics_[b]].cores.size();
    });
  }

  std::vector<LanePlace> place() {
    for (int near = kBeside; near < kNearnesses; ++near) {
      for (const std::size_t lane : order_) take(lane, static_cast<Nearness>(near), 0);
    }
    // All are busy: one more on each, the near ones first.
    for (std::size_t load = 1; !usable_.empty() && load <= nics_.size() + most_; ++load) {
      for (int near = kBeside; near < kNearnesses; ++near) {
        for (const std::size_t lane : order_) take(lane, static_cast<Nearness>(near), load);
      }
    }
    for (std::size_t lane = 0; lane < places_.size(); ++lane) explain(lane);
    return std::move(places_);
  }

 private:
  [[nodiscard]] std::size_t load_on(const Core& core) const {
    std::size_t sum = 0;
    for (const unsigned pu : core.pus) {
      if (const auto found = load_of_pu_.find(pu); found != load_of_pu_.end()) sum += found->second;
    }
    return sum;
  }

  // The first core that is so near and has that many lanes.
  void take(std::size_t lane, Nearness wanted, std::size_t load) {
    if (places_[lane].core) return;
    const Device& nic = machine_.devices[nics_[lane]];
    for (const std::size_t core : usable_) {
      if (load_[core] != load || nearness(machine_, nic, core) != wanted) continue;
      places_[lane].core = core;
      places_[lane].pu = *std::ranges::min_element(machine_.cores[core].usable_pus, {},
                                                   [this](unsigned pu) { return load_of_pu_[pu]; });
      ++load_of_pu_[places_[lane].pu];
      ++load_[core];
      return;
    }
  }

  void explain(std::size_t lane) {
    LanePlace& place = places_[lane];
    const Device& nic = machine_.devices[nics_[lane]];
    if (!place.core) {
      place.reason = "no core: the cpuset and affinity of this process leave none";
      return;
    }
    place.shared = load_[*place.core] > 1;
    switch (nearness(machine_, nic, *place.core)) {
      case kBeside:
        place.reason = machine_.packages.size() > 1 && !locality_is_known(machine_, nic)
                           ? "any core: nobody says which socket " + nic.name + " is at"
                           : "beside " + nic.name;
        break;
      case kSameSocket:
        place.reason = "on the socket of " + nic.name + ", whose own cores are taken";
        break;
      default:
        place.reason = "the cores on the socket of " + nic.name + " are taken or not to be used";
        break;
    }
    if (place.shared) place.reason += "; shared, as no core is free";
    if (isolated_) place.reason += "; isolated, as no other core is allowed";
  }

  const Machine& machine_;
  const std::vector<std::size_t>& nics_;
  std::map<unsigned, std::size_t> load_of_pu_;
  std::vector<std::size_t> load_, usable_, order_;  // load_: by core, of all of its hardware threads
  std::size_t most_ = 0;                            // of load_ at the beginning
  std::vector<LanePlace> places_;
  bool isolated_ = false;
};

}  // namespace

std::vector<LanePlace> place_lanes(const Machine& machine, const std::vector<std::size_t>& nics,
                                   const std::vector<unsigned>& busy_cpus) {
  return Placer(machine, nics, busy_cpus).place();
}

}  // namespace fairlead::topology
