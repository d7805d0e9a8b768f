// Replays of a trace, here and elsewhere in turn, so that what the machine does meanwhile meets both.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/trace/replay.h"

namespace fairlead::bench {

struct TracePlan {
  std::chrono::nanoseconds duration{2'000'000'000};  // of all replays together, but at least one pair
  std::optional<std::uint64_t> repeat;               // so many pairs instead
};

struct TraceSample {
  std::vector<ReplayTimes> local, remote;  // as many of one as of the other
  std::string transport, path;
};

/// After one pair that is not kept. `stop`: not 0 ends it with what there is, which may be nothing.
Result<TraceSample> measure_trace(const Trace& trace, Engine& engine, const std::string& address, const TracePlan& plan,
                                  const std::atomic<int>& stop);

}  // namespace fairlead::bench
