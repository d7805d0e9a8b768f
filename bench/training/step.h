// One training step on a clock: the forward pass, then the backward pass, in which one gradient after the other is
// known; what is known is fused and summed over all ranks while the rest is still being computed. The same rules make
// the plan of a step that is run (rank.h) and of one that is predicted (predict.h).
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "bench/training/models.h"

namespace fairlead::bench {

struct StepOptions {
  double compute_seconds = 0.1;                      // forward and backward of one rank, without any exchange
  double forward_share = 1.0 / 3;                    // a backward pass costs two forward passes
  std::size_t element_bytes = 4;                     // of a gradient
  std::size_t fusion_bytes = std::size_t{64} << 20;  // at most this is summed in one go (HOROVOD_FUSION_THRESHOLD)
  bool overlap = true;                               // false: sums begin when all gradients are known
};

/// A gradient tensor, and when it is known.
struct Gradient {
  std::size_t bytes = 0;
  double ready = 0;  // seconds after the step began
};

/// In the order in which they become known: from the last layer to the first, by its share of the computation.
[[nodiscard]] std::vector<Gradient> gradients_of(const Model& model, const StepOptions& options);

/// What is summed next: gradients [begin, end), at `now` or, if none is known then, as soon as one is (`start`). One
/// that is larger than the limit goes alone.
struct Bucket {
  std::size_t begin = 0, end = 0, bytes = 0;
  double start = 0;
};
[[nodiscard]] Bucket next_bucket(const std::vector<Gradient>& gradients, std::size_t begin, double now,
                                 std::size_t fusion_bytes) noexcept;

/// How long a step takes if summing `bytes` takes `seconds(bytes)`, one sum at a time.
[[nodiscard]] double step_seconds(const std::vector<Gradient>& gradients, const StepOptions& options,
                                  const std::function<double(std::size_t)>& seconds);

}  // namespace fairlead::bench
