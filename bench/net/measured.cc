#include "bench/net/measured.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace fairlead::bench {
namespace {

// 97.5 % quantiles of Student's t with 1, 2, ... degrees of freedom.
constexpr std::array kStudent = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                                 2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
                                 2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
constexpr double kNormal = 1.960;

// Beyond the table by the first term of its expansion, which is within 0.1 % there.
double student(std::size_t degrees) {
  if (degrees <= kStudent.size()) return kStudent[degrees - 1];
  return kNormal + (kNormal * kNormal * kNormal + kNormal) / (4 * static_cast<double>(degrees));
}

// Of figures of which one that is not known makes the sum unknown.
std::optional<std::uint64_t> sum_of(std::optional<std::uint64_t> a, std::optional<std::uint64_t> b) {
  return a && b ? std::optional(*a + *b) : std::nullopt;
}

}  // namespace

void Sample::merge(const Sample& other) {
  size = other.size;
  iterations += other.iterations;
  late += other.late;
  seconds += other.seconds;
  latency.merge(other.latency);
  initiator_cpu += other.initiator_cpu;
  target_cpu += other.target_cpu;
  verified = verified && other.verified;
  interrupted = interrupted || other.interrupted;
  initiator_sent_again = sum_of(initiator_sent_again, other.initiator_sent_again);
  target_sent_again = sum_of(target_sent_again, other.target_sent_again);
  for (const Share& part : other.parts) {
    const auto same = std::ranges::find(parts, part.name, &Share::name);
    if (same == parts.end()) {
      parts.push_back(part);
    } else {
      same->iterations += part.iterations;
      same->seconds += part.seconds;
    }
  }
}

void Sample::add_part(const Share& part) {
  const auto same = std::ranges::find(parts, part.name, &Share::name);
  if (same == parts.end()) {
    parts.push_back(part);
  } else {
    same->iterations += part.iterations;
  }
}

Spread spread_of(std::span<const double> values) {
  if (values.empty()) return {};
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  Spread spread{.count = values.size(), .mean = mean, .deviation = 0, .low = mean, .high = mean};
  if (values.size() == 1) return spread;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  spread.deviation = std::sqrt(squares / (count - 1));
  const double half = student(values.size() - 1) * spread.deviation / std::sqrt(count);
  spread.low = mean - half;
  spread.high = mean + half;
  return spread;
}

std::string_view mark_of(const Sample& sample) noexcept {
  if (sample.interrupted) return sample.verified ? "  interrupted" : "  interrupted, not verified";
  return sample.verified ? "" : "  not verified";
}

double bytes_per_second(const Sample& sample) noexcept {
  if (sample.seconds <= 0) return 0;
  return static_cast<double>(sample.size) * static_cast<double>(sample.iterations) / sample.seconds;
}

double bytes_per_second(const Share& part, std::uint64_t size) noexcept {
  return part.seconds > 0 ? static_cast<double>(size) * static_cast<double>(part.iterations) / part.seconds : 0;
}

double per_gb(const CpuUse& cpu, const Sample& sample) noexcept {
  const double bytes = static_cast<double>(sample.size) * static_cast<double>(sample.iterations);
  return bytes > 0 ? cpu.total() * 1e9 / bytes : 0;
}

void Measured::add(const Sample& one) {
  if (bytes_per_second.empty()) {
    sample = one;
  } else {
    sample.merge(one);
  }
  bytes_per_second.push_back(bench::bytes_per_second(one));
  latency_p50.push_back(static_cast<double>(one.latency.percentile(50)));
}

}  // namespace fairlead::bench
