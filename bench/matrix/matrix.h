// All pairs of a group's ranks, measured turn by turn (tournament.h): what the active end of each writes a second, and
// how long a write takes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/collective/group.h"
#include "bench/matrix/outliers.h"
#include "bench/net/options.h"

namespace fairlead::bench {

struct MatrixPlan {
  std::uint64_t size = std::uint64_t{1} << 20;  // of writes, for bandwidth
  std::uint64_t latency_size = 8;
  std::uint64_t depth = 8;  // writes under way, for bandwidth
  double duration = 0.2;    // seconds, of either
  const std::atomic<int>* stop = nullptr;
};

/// The same at every rank; only rank 0 has all of it.
struct MatrixRank {
  std::string host;     // as it calls itself
  std::string address;  // without a port: at which rank 0 sees it; of rank 0, at which it listens
};

struct Matrix {
  std::vector<MatrixRank> ranks;
  Grid bytes_per_second{0}, latency_p50{0}, latency_p99{0};  // ns
  std::vector<std::string> transports;                       // of pairs in the order of Grid::pairs()
  std::size_t turns = 0;                                     // that were made, by all of their pairs
  bool interrupted = false;                                  // pairs of turns that were not made have zeros
  Status failed = {};                                        // if that is why
};

/// Every rank calls it with the same plan. `tell(done, all)`, at rank 0, hears of every turn that is over. All data is
/// verified. Once the plan's stop flag is set at rank 0 the turn under way is the last, at all ranks. Errors: those of
/// measure() and of the group, naming the ranks; at rank 0 `*made` then has what was measured before, and is marked.
Status measure_matrix(Group& group, const MatrixPlan& plan, Matrix* made,
                      const std::function<void(std::size_t, std::size_t)>& tell = {});

}  // namespace fairlead::bench
