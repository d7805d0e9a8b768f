// What a training step takes over a link that is not here, from four figures of the transport.
#pragma once

#include <cstddef>
#include <optional>

#include "bench/training/step.h"

namespace fairlead::bench {

/// A transport on a link, as one rank sees it.
struct TransportModel {
  double bytes_per_core_second = 0;  // payload that one core of a rank sends and receives, both at once
  double cores = 1;                  // that a rank has for it
  double link_bytes_per_second = 0;  // each way; 0: as fast as the cores
  double latency = 0;                // seconds for one step of a ring beyond its bytes
  double window_bytes = 0;           // that may be under way without an answer; 0: no limit
  double round_trip = 0;             // seconds; with a window
};

/// The least of what cores, link and window allow.
[[nodiscard]] double rate_of(const TransportModel& transport) noexcept;

/// Ring all-reduce: each rank sends 2 (N-1)/N of the bytes in 2 (N-1) steps.
[[nodiscard]] double all_reduce_seconds(const TransportModel& transport, std::size_t ranks, double bytes) noexcept;

/// A step of `model` over `ranks` ranks.
[[nodiscard]] double predict_step(const Model& model, const StepOptions& options, const TransportModel& transport,
                                  std::size_t ranks);

/// From how many bytes of gradients per second of computation on (up to how many is told by none: it holds for all
/// above) does a step over `fast` take at most 1/ratio of one over `slow`? Nothing: never. The steps are those of a
/// network whose gradients become known evenly, so that all but the last bucket is overlapped.
[[nodiscard]] std::optional<double> intensity_for(double ratio, const TransportModel& slow, const TransportModel& fast,
                                                  std::size_t ranks) noexcept;

}  // namespace fairlead::bench
