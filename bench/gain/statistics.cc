#include "bench/gain/statistics.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

namespace fairlead::bench {
namespace {

// Draws beyond an end of an interval, below which that end is a matter of chance.
constexpr double kFewestInTail = 10;

// The standard fixes what the engine gives, but not what its distributions make of it.
std::size_t below(std::mt19937_64& random, std::size_t limit) {
  return static_cast<std::size_t>((static_cast<unsigned __int128>(random()) * limit) >> 64);
}

double sorted_quantile(std::span<const double> sorted, double part) {
  const double place = part * static_cast<double>(sorted.size() - 1);
  const auto under = static_cast<std::size_t>(place);
  const std::size_t over = std::min(under + 1, sorted.size() - 1);
  return std::lerp(sorted[under], sorted[over], place - static_cast<double>(under));
}

double normal_tail(double z) { return std::erfc(z / std::numbers::sqrt2) / 2; }

double normal_quantile(double tail) {
  double low = 0, high = 40;
  for (int i = 0; i < 80; ++i) {
    const double middle = (low + high) / 2;
    (normal_tail(middle) > tail ? low : high) = middle;
  }
  return low;
}

// Of Student's t, by its expansion around the normal one (Abramowitz and Stegun 26.7.5).
double student_quantile(double tail, double degrees) {
  const double z = normal_quantile(tail), z2 = z * z;
  return z + z * (z2 + 1) / (4 * degrees) + z * ((5 * z2 + 16) * z2 + 3) / (96 * degrees * degrees) +
         z * (((3 * z2 + 19) * z2 + 17) * z2 - 15) / (384 * degrees * degrees * degrees);
}

// Resamples spread less than samples do, so a percentile interval of few values is too narrow. This is how far out its
// ends have to be taken instead (T. Hesterberg, "What Teachers Should Know About the Bootstrap", 2015, 5.3.2).
double expanded_tail(double tail, std::size_t count) {
  if (count < 2) return 0;
  const auto n = static_cast<double>(count);
  return normal_tail(std::sqrt(n / (n - 1)) * student_quantile(tail, n - 1));
}

// The order statistics of `count` values, 1 to `count`, below and above which the median lies with at most `tail` each:
// exact whatever the distribution, as the values below the median are binomial. 0: so few values cannot be so sure.
std::size_t median_rank(double tail, std::size_t count) {
  double chance = std::pow(0.5, static_cast<double>(count));  // that as many values as `rank` lie below
  double sum = chance;
  std::size_t rank = 0;
  while (rank < count / 2 && sum <= tail) {
    ++rank;
    chance *= static_cast<double>(count - rank + 1) / static_cast<double>(rank);
    sum += chance;
  }
  return rank;
}

double median_in_place(std::span<double> values) noexcept {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

// With an interval between order statistics.
Ratio exact_ratio_of(std::span<const double> log_advantages, double confidence) {
  std::vector<double> sorted(log_advantages.begin(), log_advantages.end());
  std::ranges::sort(sorted);
  const std::size_t count = sorted.size(), rank = median_rank((1 - confidence) / 2, count);
  // From the least to the greatest is as sure as it gets.
  if (rank == 0) confidence = 1 - std::pow(0.5, static_cast<double>(count) - 1);
  const std::size_t low = std::max<std::size_t>(rank, 1) - 1;
  return {.ratio = std::exp(median(sorted)),
          .low = std::exp(sorted[low]),
          .high = std::exp(sorted[count - 1 - low]),
          .confidence = confidence,
          .quads = count};
}

enum class Family : std::uint8_t { kRdma, kTcp, kShm };

Family family_of(std::string_view transport) noexcept {
  return transport == "tcp" ? Family::kTcp : transport == "shm" ? Family::kShm : Family::kRdma;
}

}  // namespace

std::vector<bool> quad_orders(std::size_t quads, std::uint64_t seed) {
  std::vector<bool> orders(quads);
  for (std::size_t i = 0; i < quads; ++i) orders[i] = i % 2 == 1;
  std::mt19937_64 random(seed);
  for (std::size_t i = quads; i > 1; --i) {
    const std::size_t other = below(random, i);
    const bool kept = orders[i - 1];
    orders[i - 1] = orders[other];
    orders[other] = kept;
  }
  return orders;
}

double log_advantage(const QuadFigures& quad, Better better) noexcept {
  const double log = (std::log(quad.candidate[0]) + std::log(quad.candidate[1]) - std::log(quad.baseline[0]) -
                      std::log(quad.baseline[1])) /
                     2;
  return better == Better::kHigher ? log : -log;
}

double median(std::vector<double> values) noexcept { return median_in_place(values); }

Ratio ratio_of(std::span<const double> log_advantages, double confidence, std::uint64_t seed, unsigned resamples) {
  if (log_advantages.empty() || resamples == 0) return {};
  const double tail = expanded_tail((1 - confidence) / 2, log_advantages.size());
  if (tail * resamples < kFewestInTail) return exact_ratio_of(log_advantages, confidence);
  std::mt19937_64 random(seed);
  std::vector<double> drawn(log_advantages.size());
  std::vector<double> medians(resamples);
  for (double& each : medians) {
    for (double& value : drawn) value = log_advantages[below(random, log_advantages.size())];
    each = median_in_place(drawn);
  }
  std::ranges::sort(medians);
  return {.ratio = std::exp(median({log_advantages.begin(), log_advantages.end()})),
          .low = std::exp(sorted_quantile(medians, tail)),
          .high = std::exp(sorted_quantile(medians, 1 - tail)),
          .confidence = confidence,
          .quads = log_advantages.size()};
}

Verdict verdict_of(const Ratio& ratio, bool equal_terms) noexcept {
  if (!equal_terms) return Verdict::kUnequalTerms;
  if (ratio.quads < kFewestQuads) return Verdict::kInconclusive;
  if (ratio.low >= 1 / (1 + kNoDifference) && ratio.high <= 1 + kNoDifference) return Verdict::kNoDifference;
  if (ratio.low > 1) return Verdict::kCandidate;
  if (ratio.high < 1) return Verdict::kBaseline;
  return Verdict::kInconclusive;
}

std::string_view to_string(Verdict verdict, std::string_view baseline, std::string_view candidate) noexcept {
  switch (verdict) {
    case Verdict::kNoDifference:
      return "no_difference";
    case Verdict::kInconclusive:
      return "inconclusive";
    case Verdict::kUnequalTerms:
      return "unequal_terms";
    default:
      break;
  }
  const bool ours = verdict == Verdict::kCandidate;
  if (family_of(baseline) == family_of(candidate)) return ours ? "candidate_faster" : "baseline_faster";
  switch (family_of(ours ? candidate : baseline)) {
    case Family::kTcp:
      return "tcp_faster";
    case Family::kShm:
      return "shm_faster";
    default:
      return "rdma_faster";
  }
}

}  // namespace fairlead::bench
