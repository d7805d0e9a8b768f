// What one size gave, over all its repeats.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "bench/net/options.h"

namespace fairlead::bench {

/// Of values that were measured independently: their mean, their standard deviation, and an interval that holds the
/// true mean in 95 % of such series (Student's t). Of one value the interval is the value.
struct Spread {
  std::size_t count = 0;
  double mean = 0, deviation = 0, low = 0, high = 0;
};
[[nodiscard]] Spread spread_of(std::span<const double> values);

struct Measured {
  Sample sample;  // all repeats as if they had been one: histograms merged, never percentiles averaged
  std::vector<double> bytes_per_second, latency_p50;  // of each repeat

  void add(const Sample& one);
};

/// What a table says behind a line that is not whole; empty: it is.
[[nodiscard]] std::string_view mark_of(const Sample& sample) noexcept;

[[nodiscard]] double bytes_per_second(const Sample& sample) noexcept;
[[nodiscard]] double bytes_per_second(const Share& part, std::uint64_t size) noexcept;
/// Of one of its ends, for 10^9 bytes of payload; 0 of none.
[[nodiscard]] double per_gb(const CpuUse& cpu, const Sample& sample) noexcept;

}  // namespace fairlead::bench
