#include "bench/training/predict.h"

#include <algorithm>
#include <limits>

namespace fairlead::bench {

double rate_of(const TransportModel& transport) noexcept {
  double rate = transport.bytes_per_core_second * transport.cores;
  if (transport.link_bytes_per_second > 0) rate = std::min(rate, transport.link_bytes_per_second);
  if (transport.window_bytes > 0 && transport.round_trip > 0) {
    rate = std::min(rate, transport.window_bytes / transport.round_trip);
  }
  return rate;
}

double all_reduce_seconds(const TransportModel& transport, std::size_t ranks, double bytes) noexcept {
  if (ranks < 2) return 0;
  const auto n = static_cast<double>(ranks);
  return 2 * (n - 1) * (transport.latency + bytes / n / rate_of(transport));
}

double predict_step(const Model& model, const StepOptions& options, const TransportModel& transport,
                    std::size_t ranks) {
  return step_seconds(gradients_of(model, options), options, [&](std::size_t bytes) {
    return all_reduce_seconds(transport, ranks, static_cast<double>(bytes));
  });
}

std::optional<double> intensity_for(double ratio, const TransportModel& slow, const TransportModel& fast,
                                    std::size_t ranks) noexcept {
  // With x bytes of gradients per second of computation, a step takes max(1, 2 (N-1)/N x / rate) seconds for each
  // second that it computes: flat, then a line. The quotient of two such grows until the faster one leaves its flat
  // part.
  const auto n = static_cast<double>(ranks);
  const double exchanged = 2 * (n - 1) / n, slow_rate = rate_of(slow), fast_rate = rate_of(fast);
  if (ranks < 2 || fast_rate < ratio * slow_rate) return std::nullopt;
  return ratio * slow_rate / exchanged;
}

}  // namespace fairlead::bench
