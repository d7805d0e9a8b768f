// What a replay says: figures, and the JSON of a trace. Threads: functions without state.
#pragma once

#include <string>

#include "bench/base/json.h"
#include "bench/trace/measure.h"
#include "bench/trace/trace.h"

namespace fairlead::bench {

/// Of the replays of one side, ns.
struct TraceSpread {
  std::uint64_t min = 0, p50 = 0, max = 0;
};
[[nodiscard]] TraceSpread spread_of(const std::vector<ReplayTimes>& replays);

/// By how much the medians differ: 0.05 is 5 % more there than here. 0 without replays.
[[nodiscard]] double overhead_of(const TraceSample& sample);

/// {"file", "name", "made", "calls", "streams", "blocking", "bytes_out", "bytes_back", "gap_ns", "device_ns"}
[[nodiscard]] Json to_json(const Trace& trace, const std::string& file);
/// {"local_ns", "remote_ns": {"min", "p50", "max"}, "replays", "overhead", "by_op": {OP: {...}}, "waiting_at_end_ns"}
[[nodiscard]] Json::Object to_json(const Trace& trace, const TraceSample& sample);

}  // namespace fairlead::bench
