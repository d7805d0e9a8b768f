// A trace over a network that is not there: how long a step takes with a round trip and a bandwidth.
//
// A simulation of discrete events with the rules of command channels (docs/commands.md): buffers that leave by size, by
// number, 20 us after their first command or when somebody waits; credits; payload that crosses as bulk, which commands
// do not wait for; replies when there is nothing left to run, every 64 commands, every 50 us. A device does one thing
// at a time, in the order in which it can. Appending, encoding and running a command cost nothing, and there are no
// headers but the channel's own: what the software takes is part of the round trip that is given, which one measures.
// Threads: functions without state. The same trace and link give the same figures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "bench/trace/trace.h"

namespace fairlead::bench {

struct TraceLink {
  double rtt_ns = 0;           // of a command and its reply; half of it is each way's
  double bits_per_second = 0;  // each way; 0: no limit
};

struct EmulatedDevice {
  double copy_bits_per_second = 200e9;  // to and from its host: PCIe 4.0 x16 has 25 GB/s
};

struct EmulatedStep {
  double step_ns = 0;         // from the first gap until everything is complete
  std::uint64_t buffers = 0;  // of commands that left
  std::uint64_t replies = 0;  // that came
  std::uint64_t waits = 0;    // calls that blocked, and one at the end if something was under way then
  double waited_ns = 0;       // in them, and for credits
};

[[nodiscard]] EmulatedStep emulate_remote(const Trace& trace, const TraceLink& link, const EmulatedDevice& device = {});
/// The device in the program's own host: each command is there as it is made, each reply at once.
[[nodiscard]] EmulatedStep emulate_local(const Trace& trace, const EmulatedDevice& device = {});

/// The longest round trip with which a step takes at most 1 + `overhead` times the local one, to 0.1 %, by bisection;
/// nullopt: not even with one of 1 ns. At most kLongestRoundTrip.
[[nodiscard]] std::optional<double> longest_round_trip(const Trace& trace, double bits_per_second, double overhead,
                                                       const EmulatedDevice& device = {});
inline constexpr double kLongestRoundTrip = 1e9;  // ns

}  // namespace fairlead::bench
