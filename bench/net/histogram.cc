#include "bench/net/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace fairlead::bench {
namespace {

constexpr unsigned kStepBits = 7;
constexpr std::uint64_t kSteps = std::uint64_t{1} << kStepBits;
// One group of exact values, then one group of steps per power of two from 2^7 to 2^63.
constexpr std::size_t kBuckets = kSteps * (1 + 64 - kStepBits);

std::size_t bucket_of(std::uint64_t value) noexcept {
  if (value < kSteps) return value;
  const auto shift = static_cast<unsigned>(std::bit_width(value)) - 1 - kStepBits;
  return kSteps * (shift + 1) + ((value >> shift) - kSteps);
}

std::uint64_t middle_of(std::size_t bucket) noexcept {
  if (bucket < kSteps) return bucket;
  const std::size_t shift = bucket / kSteps - 1;
  const std::uint64_t low = (kSteps + bucket % kSteps) << shift;
  return low + (std::uint64_t{1} << shift) / 2;
}

}  // namespace

Histogram::Histogram() : counts_(kBuckets) {}

void Histogram::record(std::uint64_t value) noexcept {
  ++counts_[bucket_of(value)];
  ++count_;
  min_ = std::min(min_, value);
  max_ = std::max(max_, value);
}

void Histogram::clear() noexcept {
  std::fill(counts_.begin(), counts_.end(), 0);
  count_ = 0;
  min_ = ~std::uint64_t{0};
  max_ = 0;
}

void Histogram::merge(const Histogram& other) noexcept {
  for (std::size_t bucket = 0; bucket < counts_.size(); ++bucket) counts_[bucket] += other.counts_[bucket];
  count_ += other.count_;
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
}

std::uint64_t Histogram::percentile(double percent) const noexcept {
  if (count_ == 0) return 0;
  if (percent <= 0) return min_;
  if (percent >= 100) return max_;
  // What is a whole number is one, though 99.9 is none in binary.
  constexpr double kAlmost = 1 - 1e-12;
  const double exact = percent * static_cast<double>(count_) / 100;
  const auto wanted = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::ceil(exact * kAlmost)));
  std::uint64_t seen = 0;
  for (std::size_t bucket = 0; bucket < counts_.size(); ++bucket) {
    seen += counts_[bucket];
    if (seen >= wanted) return std::clamp(middle_of(bucket), min_, max_);
  }
  return max_;
}

double Histogram::mean() const noexcept {
  double sum = 0;
  for (std::size_t bucket = 0; bucket < counts_.size(); ++bucket)
    sum += static_cast<double>(counts_[bucket]) * static_cast<double>(middle_of(bucket));
  return count_ == 0 ? 0 : sum / static_cast<double>(count_);
}

double Histogram::deviation() const noexcept {
  const double average = mean();
  double squares = 0;
  for (std::size_t bucket = 0; bucket < counts_.size(); ++bucket) {
    if (counts_[bucket] == 0) continue;
    const double off = static_cast<double>(middle_of(bucket)) - average;
    squares += static_cast<double>(counts_[bucket]) * off * off;
  }
  return count_ == 0 ? 0 : std::sqrt(squares / static_cast<double>(count_));
}

}  // namespace fairlead::bench
