// What became of EngineConfig::placement: where an engine's lanes run, where its pool lies, and how much each transport
// should carry. Engine::placement() gives it. Threads: values.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "fairlead/export.h"

namespace fairlead::inline v0 {

/// Of one lane.
struct LanePlacement {
  bool pinned = false;              // to one CPU, and the system says so, too
  std::vector<unsigned> cpus = {};  // where its thread may run, as the system says; empty: the lane has no thread
  std::string reason = {};          // for the CPU, or why it is not pinned
};

/// How much of what is sent from the pool, when all transports send, one of them should carry: what its paths begin
/// with where data of large transfers is spread over several, until it is measured.
struct PlannedShare {
  std::string transport;               // "verbs:mlx5_0"
  std::vector<std::string> nics = {};  // that it goes over, as `fairlead topo` calls them; none: not known
  double bytes_per_second = 0;         // 0: not known, or the others carry all that can be sent
  bool assumed = false;                // it follows from a bandwidth that is assumed
};

struct FAIRLEAD_EXPORT PlacementReport {
  std::vector<LanePlacement> lanes;       // by number
  std::optional<unsigned> pool_node;      // the NUMA node that the pool is bound to
  std::string pool_reason;                // for it, or why there is none
  std::vector<std::size_t> pool_pages;    // by node: where a sample of its pages is, of those that were touched
  std::vector<PlannedShare> shares;       // of the transports that were open when the engine began
  std::vector<std::string> remarks = {};  // what was refused, and what else may be of interest, in sentences

  /// Lanes and pool in one line: "lane 0 on CPU 8 (beside mlx5_0); pool on node 1 (...)".
  [[nodiscard]] std::string to_string() const;
};

}  // namespace fairlead::inline v0
