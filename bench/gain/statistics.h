// What blocks of two sides, measured in turn, say about their ratio.
//
// Four blocks are a quad, ABBA or BAAB, so that a machine that becomes steadily slower or faster meanwhile favours
// neither. A quad gives one number: the logarithm of how many times better the candidate (B) was than the baseline (A).
// What is reported is the median of these, and an interval for it by bootstrap over quads: not over blocks or
// operations, which follow each other and are not independent. Threads: pure functions. The same seed gives the same
// numbers on every machine.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace fairlead::bench {

/// For each quad whether it is BAAB. As many as are ABBA (one more or less), in random order.
[[nodiscard]] std::vector<bool> quad_orders(std::size_t quads, std::uint64_t seed);
/// What a comparison's seed is combined with (xor) for other orders of its own: in which the sessions of quads are
/// opened, and those of the control.
inline constexpr std::uint64_t kOpeningOrder = 0x6f70656e, kControlOpeningOrder = 0x6374726c;

/// One quad's figures of one metric: two blocks of each side, all above 0.
struct QuadFigures {
  std::array<double, 2> baseline{}, candidate{};
};

enum class Better : std::uint8_t { kHigher, kLower };

/// ln(candidate / baseline) of the blocks' geometric means, or its negative where less is better: above 0, the
/// candidate was better.
[[nodiscard]] double log_advantage(const QuadFigures& quad, Better better) noexcept;

/// Of an even number of values the mean of the two in the middle; 0 of none.
[[nodiscard]] double median(std::vector<double> values) noexcept;

struct Ratio {
  double ratio = 1;          // how many times better the candidate is
  double low = 1, high = 1;  // an interval for it
  double confidence = 0;     // how sure it is
  std::size_t quads = 0;
};

/// The ratio that the logarithms of the quads speak for, with a percentile interval from `resamples` draws of as many
/// quads with replacement, expanded for how few quads there are. Where fewer than 10 draws would lie beyond an end the
/// interval is between order statistics instead, which is exact (binomial); if there are too few quads for that too, it
/// is from the least to the greatest, with the confidence that this has. Of no quads: all 1, with confidence 0.
[[nodiscard]] Ratio ratio_of(std::span<const double> log_advantages, double confidence, std::uint64_t seed,
                             unsigned resamples = 10'000);

/// How far from 1 a ratio may be that makes no difference.
inline constexpr double kNoDifference = 0.03;
/// Below this many quads nothing is claimed.
inline constexpr std::size_t kFewestQuads = 20;

enum class Verdict : std::uint8_t { kCandidate, kBaseline, kNoDifference, kInconclusive, kUnequalTerms };

/// kUnequalTerms unless the terms were equal. Then kNoDifference if the whole interval is within kNoDifference of 1,
/// the better side if it does not include 1, and kInconclusive for all else.
[[nodiscard]] Verdict verdict_of(const Ratio& ratio, bool equal_terms) noexcept;

/// "rdma_faster", "tcp_faster", "shm_faster", "no_difference", "inconclusive", "unequal_terms"; where both sides are of
/// one kind, "candidate_faster" and "baseline_faster". The sides are transports: "verbs:soft0", "tcp".
[[nodiscard]] std::string_view to_string(Verdict verdict, std::string_view baseline,
                                         std::string_view candidate) noexcept;

}  // namespace fairlead::bench
