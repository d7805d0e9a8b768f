// Two transports between the same two hosts, measured in turn: blocks of each in random order, size by size.
//
// A quad has sessions of its own, one of each side, opened in random order. What is peculiar to a session (how its
// connection came up, where its memory lies, who came first) makes up to a factor of three here, and lasts as long as
// the session does: with one session a side it would count as the transport's. So it is drawn again for each quad, as
// all else that varies, and the interval, which is over quads, has it in it. The control is the same between two
// sessions of the baseline: what machine and method make of no difference. Threads: one. Errors: those of a load
// (bench/net/load.h).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "bench/gain/statistics.h"
#include "bench/net/link.h"
#include "bench/net/options.h"

namespace fairlead::bench {

enum class Metric : std::uint8_t {
  kBandwidth,          // bytes per second
  kBytesPerCpuSecond,  // of both ends' processor time, and what their hosts spend in soft interrupts
  kInitiatorCpu,       // seconds per GB; with its host's soft interrupts, where that host is not the target's, too
  kTargetCpu,          // seconds per GB; the same
  kLatencyP50,         // ns
  kLatencyP99,         // ns
  kSamplesPerSecond,   // of steps of training (training.h)
};
/// Those of a load.
inline constexpr std::array kMetrics = {Metric::kBandwidth, Metric::kBytesPerCpuSecond, Metric::kInitiatorCpu,
                                        Metric::kTargetCpu, Metric::kLatencyP50,        Metric::kLatencyP99};

/// "bandwidth", "bytes_per_cpu_second", "initiator_cpu_seconds_per_gb", ...
[[nodiscard]] std::string_view name_of(Metric metric) noexcept;
[[nodiscard]] constexpr Kind kind_of(Metric metric) noexcept {
  return metric == Metric::kLatencyP50 || metric == Metric::kLatencyP99 ? Kind::kLatency : Kind::kBandwidth;
}
[[nodiscard]] constexpr Better better_of(Metric metric) noexcept {
  return metric == Metric::kBandwidth || metric == Metric::kBytesPerCpuSecond || metric == Metric::kSamplesPerSecond
             ? Better::kHigher
             : Better::kLower;
}

struct GainPlan {
  Plan load;  // its sizes, operation, depth; not its duration
  std::vector<Kind> kinds = {Kind::kBandwidth, Kind::kLatency};
  std::uint64_t quads = 24;
  /// Over how many pairs of sessions they are spread; 0: each has its own. Fewer are for links over which a session
  /// takes long to begin; an interval does not know then what the few that there were have in common.
  std::uint64_t sessions = 0;
  std::uint64_t seed = 1;
  double block = 0.1;  // seconds
  /// What the comparison is about, said before it is made; all else is told beside it.
  Metric primary = Metric::kBandwidth;
  std::uint64_t primary_size = 0;
  bool control = true;
  bool one_host = false;  // both ends are on it: its soft interrupts are neither end's alone, and count once
  /// The candidate rests for so long a part of the time that it ran: a loss that is known, by which to check the
  /// method.
  double slow_candidate = 0;

  [[nodiscard]] std::uint64_t pairs_of_sessions() const noexcept {
    return sessions == 0 ? quads : std::min(sessions, quads);
  }
  [[nodiscard]] bool has_control(Kind kind, std::uint64_t size) const noexcept {
    return control && kind == kind_of(primary) && size == primary_size;
  }
};

/// How long it will take, about.
[[nodiscard]] double expected_seconds(const GainPlan& plan) noexcept;

/// What one block gave. A metric that it does not have (none of its kind, no processor time that could be measured) is
/// 0.
struct Block {
  double seconds = 0;
  std::uint64_t operations = 0, size = 0;
  double initiator_cpu = 0, target_cpu = 0;          // seconds, of the processes
  double initiator_softirq = 0, target_softirq = 0;  // seconds, of the hosts; on one host the same, seen twice
  bool one_host = false;
  std::uint64_t latency_p50 = 0, latency_p99 = 0;  // ns
};
[[nodiscard]] double figure_of(const Block& block, Metric metric) noexcept;

struct Quad {
  bool candidate_outside = false;  // BAAB
  std::array<Block, 2> baseline, candidate;
};

/// The quads of one kind and size. `control` has the second baseline in place of the candidate.
struct Series {
  Kind kind = Kind::kBandwidth;
  std::uint64_t size = 0;
  std::vector<Quad> quads, control;
  bool verified = false;
};

enum class Side : std::uint8_t { kBaseline, kCandidate };
/// Begins a session of that side, over the transport that is compared. It is ended when it is not needed any more.
using Connect = std::function<Result<std::unique_ptr<Link>>(Side)>;

/// Measures all of the plan; `done` gets each series when it is complete, also where one after it fails. Once the
/// plan's stop flag is set the last is what there is of it: whole quads.
Status compare_transports(const Connect& connect, const GainPlan& plan, const std::function<void(const Series&)>& done);

}  // namespace fairlead::bench
