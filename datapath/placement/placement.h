// Where an engine's lanes run and its pool lies: planned for the devices in use (topology/engine_plan.h), applied, read
// back, and reported.
//
// Pinned are the engine's own threads alone, and of these the lanes': never an application's, so with
// Progress::kApplication none. Owner: the engine's commons. Threads: plan() and pin() before the engine is handed out;
// what is const from any thread after that.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "datapath/placement/core_claims.h"
#include "datapath/placement/pool_placement.h"
#include "datapath/placement/used_nics.h"
#include "fairlead/config.h"
#include "fairlead/placement.h"
#include "fairlead/status.h"
#include "topology/engine_plan.h"
#include "topology/machine.h"

namespace fairlead::datapath {

/// What a plan is made from, beside the configuration.
struct Surroundings {
  topology::Machine machine;
  std::vector<LocalAddress> addresses = {};
  std::string root = "";  // of the file system
  std::string claims = "/dev/shm/fairlead-cores";
};

class Placement {
 public:
  /// What the configuration asks for, for these transports. With "auto" what cannot be known is no error: then nothing
  /// is pinned, and the report says why. Errors: a node or cores that this process does not have.
  Status plan(const EngineConfig& config, const std::vector<UsedTransport>& transports);
  /// The same for a machine that is known; for tests.
  Status plan(const EngineConfig& config, const std::vector<UsedTransport>& transports, Surroundings around);
  /// The lane's thread goes where the plan says, and is asked where it may run. nullopt: it has none.
  void pin(std::size_t lane, std::optional<pthread_t> thread);
  /// All lanes have been pinned: says so in the log, in one line; where nothing is pinned once in a process.
  void say() const;
  /// The engine ends: others may have its CPUs.
  void release() noexcept { claims_.reset(); }

  /// For the pool; there once it is planned.
  [[nodiscard]] const std::shared_ptr<PoolPlacement>& pool() const noexcept { return pool_; }
  /// Where threads that are no lanes may run: as before anything was pinned. Empty: nothing is.
  [[nodiscard]] std::span<const unsigned> elsewhere() const noexcept { return elsewhere_; }
  /// How much a transport should carry, when the one of its kind that should carry least has 1; 2 of those that should
  /// carry as much as each other, or that nobody planned.
  [[nodiscard]] double weight_of(std::string_view transport) const;
  [[nodiscard]] PlacementReport report() const;

 private:
  Status plan_around_others(const PlacementWish& wish, topology::EngineUse use, const std::string& claims);
  void share_out(const std::vector<UsedTransport>& transports, const std::vector<std::vector<std::size_t>>& nics);

  topology::Machine machine_;
  topology::EnginePlan plan_;
  std::optional<CoreClaims> claims_;
  std::shared_ptr<PoolPlacement> pool_ = std::make_shared<PoolPlacement>(std::nullopt);
  std::vector<unsigned> elsewhere_;
  std::map<std::string, double, std::less<>> weights_;  // by transport, where they differ
  PlacementReport report_;                              // but for what the pool says
};

}  // namespace fairlead::datapath
