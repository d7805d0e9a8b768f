// From blocks to claims: one ratio for each metric and size, and what may be said of it.
//
// One of them is the primary comparison, which was named before anything was measured: its interval is at 99 %. All
// others are secondary: their intervals are widened (Bonferroni) so that all of them together hold in 99 % of the runs.
// What the control, the baseline beside itself, shows as a difference is none of the candidate's: a claim must reach
// beyond it. Threads: pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/gain/comparison.h"
#include "bench/gain/terms.h"

namespace fairlead::bench {

inline constexpr double kConfidence = 0.99;

struct Comparison {
  Metric metric = Metric::kBandwidth;
  std::uint64_t size = 0;
  bool primary = false;
  /// Not so: processor time of one end where both are on one host, whose soft interrupts are neither's alone. A
  /// kernel's transport would seem to cost nothing. It is shown, and nothing is claimed of it.
  bool claimable = true;
  double baseline = 0, candidate = 0;  // medians of the blocks
  Ratio ratio;
  Verdict verdict = Verdict::kInconclusive;
  std::vector<QuadFigures> quads;
  std::vector<bool> candidate_outside;  // of each quad
};

struct Analysis {
  std::vector<Comparison> results;    // the primary one first; none that no quad has figures of
  std::optional<Comparison> control;  // of the primary metric
  std::vector<Term> terms;
  bool equal_terms = false;
  std::string reason;  // of the primary verdict, a sentence

  /// nullptr: it was interrupted before its first quad.
  [[nodiscard]] const Comparison* primary() const noexcept {
    return !results.empty() && results.front().primary ? &results.front() : nullptr;
  }
};

/// What stands in `analysis` without ratios yet, its results with the primary one first, gets them, with intervals,
/// verdicts and the reason.
void judge(Analysis& analysis, std::uint64_t seed, bool interrupted);

/// `interrupted`: there are fewer quads than the plan has.
[[nodiscard]] Analysis analyse(const std::vector<Series>& all, std::vector<Term> terms, const GainPlan& plan,
                               bool interrupted);

/// "bandwidth at 1M", as people read it.
[[nodiscard]] std::string words_of(const Comparison& comparison);

}  // namespace fairlead::bench
