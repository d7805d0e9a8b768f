// What to measure, and what was measured.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/base/cpu_time.h"
#include "bench/memory/place.h"
#include "bench/net/histogram.h"
#include "bench/net/together.h"

namespace fairlead::bench {

enum class Kind : std::uint8_t { kBandwidth, kLatency };
enum class Op : std::uint8_t { kWrite, kRead, kSend };
/// How an end of a ping-pong of writes learns of one: by its notification, or by looking at the memory.
enum class Arrival : std::uint8_t { kNotification, kMemory };

[[nodiscard]] constexpr std::string_view to_string(Kind kind) { return kind == Kind::kBandwidth ? "bw" : "lat"; }
[[nodiscard]] constexpr std::string_view to_string(Op op) {
  return op == Op::kWrite ? "write" : op == Op::kRead ? "read" : "send";
}

[[nodiscard]] constexpr std::string_view to_string(Arrival arrival) {
  return arrival == Arrival::kMemory ? "memory" : "notification";
}

inline constexpr std::uint64_t kMaxSize = std::uint64_t{1} << 30;    // of one operation, bytes
inline constexpr std::uint64_t kMaxBuffer = std::uint64_t{1} << 30;  // of all slots at one end, bytes
inline constexpr std::uint64_t kMaxDepth = 4096;
inline constexpr std::uint64_t kMaxRepeats = 1000;
inline constexpr std::uint64_t kMaxSessions = 64;

/// How far a timed part is.
struct Interval {
  double from = 0, to = 0;       // seconds since it began
  std::uint64_t operations = 0;  // that ended in between
};

struct Plan {
  Kind kind = Kind::kBandwidth;
  Op op = Op::kWrite;
  Arrival arrival = Arrival::kNotification;  // latency of writes
  Place memory;                              // of the initiator's; the target says where its own is
  bool bidirectional = false;                // bandwidth of writes: and of as many reads at the same time
  std::vector<std::uint64_t> sizes;
  double duration = 2;           // seconds per size, unless `iterations`
  std::uint64_t iterations = 0;  // per size; 0: by duration
  std::uint64_t warmup = 100;    // operations before the clock starts (for at most a quarter second)
  std::uint64_t depth = 16;      // operations in flight (bandwidth)
  bool burst = false;            // they are posted one by one and end in groups (fairlead/burst.h)
  std::uint64_t batch = 1;       // of them that are posted by one call, as one transfer (bandwidth of writes and reads)
  std::uint64_t footprint = std::uint64_t{1} << 20;  // bytes at each end that operations go round (bandwidth)
  /// Operations a second, each due at its time whatever became of those before it: latency is from then. 0: as fast as
  /// they complete.
  double rate = 0;
  double phase = 0;  // by so much of the time from one to the next they are due later
  std::uint64_t repeat = 1;
  double interval = 0;  // seconds between calls of `tell`; 0: none. What is left at the end is told, too
  std::function<void(const Interval&)> tell = {};
  bool verify = true;
  const std::atomic<int>* stop = nullptr;  // once it is not 0, the measurement ends with what there is
  Together* together = nullptr;            // of a load that is one of several at once

  /// What `arrival` is for.
  [[nodiscard]] bool is_ping_pong_of_writes() const noexcept { return kind == Kind::kLatency && op == Op::kWrite; }
  [[nodiscard]] bool stopped() const noexcept {
    return (stop != nullptr && *stop != 0) || (together != nullptr && together->failed());
  }
};

/// What some of the sessions of a measurement moved.
struct Share {
  std::string name;              // "to gpu7:7472"
  std::uint64_t iterations = 0;  // operations
  double seconds = 0;
};

/// One size's figures.
struct Sample {
  std::uint64_t size = 0;        // bytes per operation
  std::uint64_t iterations = 0;  // operations (ping-pong: round trips)
  std::uint64_t late = 0;        // more of them, which were on their way when the time was over and do not count
  double seconds = 0;            // until the last that counts had ended
  Histogram latency;             // ns; see docs/benchmarks.md for from where to where
  /// Seconds, of those that count: their share of what they and the late ones took.
  CpuUse initiator_cpu, target_cpu;
  bool verified = false;
  bool interrupted = false;  // ended before its time, and so not verified; or has fewer repeats than were asked for
  /// What each end's transport sent again, where it says.
  std::optional<std::uint64_t> initiator_sent_again, target_sent_again;
  std::vector<Share> parts;  // of it, where sessions differ by more than their number

  /// Takes in another of the same size, as if the two had been one.
  void merge(const Sample& other);
  /// Beside those before; to the operations of one of the same name, for the same seconds.
  void add_part(const Share& part);
  /// Of all operations, those that count.
  [[nodiscard]] double counted_share() const noexcept {
    return late == 0 ? 1 : static_cast<double>(iterations) / static_cast<double>(iterations + late);
  }
};

}  // namespace fairlead::bench
