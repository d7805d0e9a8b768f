// Both ends of a measurement of command channels: how many commands of 64 bytes a second run, and how long one takes
// whose end is waited for. The kernel does nothing; all else is as for one that does.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/base/json.h"
#include "bench/net/histogram.h"
#include "fairlead/command_service.h"
#include "fairlead/engine.h"
#include "fairlead/status.h"

namespace fairlead::bench {

/// Serves one session until it has ended. False: none came, or not well.
bool serve_one_session(Engine engine, command::ServiceConfig config);
/// The host, with the kernel that does nothing.
[[nodiscard]] command::ExecutorFactory bench_executors();

/// The same for measure_commands(): in `where`, or if `program` is not empty in a process that this starts (it serves a
/// session by bench_executors()).
bool serve_commands(Engine engine, command::ServiceConfig::Where where, std::vector<std::string> program = {});

struct CommandRates {
  std::uint64_t commands = 0;
  double seconds = 0;
  Histogram ages;         // ns, of commands of the stream, from before the launch until its end is known; one at a time
  Histogram round_trips;  // ns, from before the launch until its end is known
  Histogram bulk_round_trips;  // the same while another channel of the session copies as much as it can
  double bulk_bytes_per_second = 0;
  std::string transport, path;
};

enum class Bulk : bool { kIn, kOut };

struct CommandLoad {
  std::chrono::nanoseconds duration;  // of each figure
  std::uint64_t depth = 0;            // commands under way, 0: as many as there are credits
  Bulk bulk = Bulk::kIn;
};
/// `stop`: not 0 ends it with what there is.
Result<CommandRates> measure_commands(Engine& engine, const std::string& address, const CommandLoad& load,
                                      const std::atomic<int>& stop);

/// {"p50", "p99", ...} of a histogram of ns; null if it is empty.
[[nodiscard]] Json percentiles(const Histogram& times);

}  // namespace fairlead::bench
