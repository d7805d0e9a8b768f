// How long things took, from 5 ms to five minutes.
//
// Threads: observe() by one at a time, read() by any.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include "base/counter.h"
#include "metrics/metric.h"

namespace fairlead::metrics {

class DurationHistogram {
 public:
  void observe(double seconds) noexcept {
    std::size_t bucket = 0;
    while (bucket < kMost.size() && seconds > kMost[bucket]) ++bucket;
    counts_[bucket].add();
    sum_.store(sum_.load(std::memory_order_relaxed) + seconds, std::memory_order_relaxed);
  }
  /// While something is observed its time may be missing from the sum, or already there.
  [[nodiscard]] Distribution read() const {
    Distribution all;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      all.count += counts_[i].get();
      if (i < kMost.size()) all.buckets.push_back({kMost[i], all.count});
    }
    all.sum = sum_.load(std::memory_order_relaxed);
    return all;
  }

 private:
  static constexpr std::array kMost{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0};

  std::array<Counter, kMost.size() + 1> counts_;
  std::atomic<double> sum_{0};
};

}  // namespace fairlead::metrics
