#include "bench/training/step.h"

#include <algorithm>

namespace fairlead::bench {

std::vector<Gradient> gradients_of(const Model& model, const StepOptions& options) {
  const double forward = options.compute_seconds * options.forward_share;
  const double backward = options.compute_seconds - forward, all = model.forward_macs();
  std::vector<Gradient> gradients;
  double macs = 0;
  for (auto layer = model.layers.rbegin(); layer != model.layers.rend(); ++layer) {
    macs += layer->forward_macs;
    const double ready = options.overlap ? forward + backward * macs / all : options.compute_seconds;
    for (const std::size_t elements : layer->gradients) gradients.push_back({elements * options.element_bytes, ready});
  }
  return gradients;
}

Bucket next_bucket(const std::vector<Gradient>& gradients, std::size_t begin, double now,
                   std::size_t fusion_bytes) noexcept {
  Bucket bucket{begin, begin + 1, gradients[begin].bytes, std::max(now, gradients[begin].ready)};
  while (bucket.end < gradients.size() && gradients[bucket.end].ready <= bucket.start &&
         bucket.bytes + gradients[bucket.end].bytes <= fusion_bytes) {
    bucket.bytes += gradients[bucket.end++].bytes;
  }
  return bucket;
}

double step_seconds(const std::vector<Gradient>& gradients, const StepOptions& options,
                    const std::function<double(std::size_t)>& seconds) {
  double now = 0;
  for (std::size_t at = 0; at < gradients.size();) {
    const Bucket bucket = next_bucket(gradients, at, now, options.fusion_bytes);
    now = bucket.start + seconds(bucket.bytes);
    at = bucket.end;
  }
  return std::max(now, options.compute_seconds);
}

}  // namespace fairlead::bench
