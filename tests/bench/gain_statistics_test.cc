// What a comparison claims, on data whose truth is known: made by formula, by simulation, and recorded of a side
// beside itself.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>
#include <string>

#include "bench/base/json.h"
#include "bench/gain/statistics.h"

namespace fairlead::bench {
namespace {

constexpr double kConfidence = 0.99;
constexpr unsigned kResamples = 800;

// Noise as machines have it: mostly small, now and then a block that something else disturbed.
class Noise {
 public:
  explicit Noise(std::uint64_t seed) : random_(seed) {}
  double operator()() {
    std::normal_distribution<double> calm(0, 0.02);
    std::uniform_real_distribution<double> chance(0, 1);
    std::exponential_distribution<double> disturbed(4);
    return calm(random_) - (chance(random_) < 0.1 ? disturbed(random_) : 0);
  }

 private:
  std::mt19937_64 random_;
};

// The logarithms of quads whose candidate is `ratio` times as fast, on a machine that becomes slower by `drift` a
// block.
std::vector<double> made(double ratio, std::size_t quads, std::uint64_t seed, double drift = 0) {
  Noise noise(seed);
  double block = 0;
  std::vector<double> logs;
  for (const bool outside : quad_orders(quads, seed)) {
    QuadFigures figures;
    std::size_t taken[2] = {0, 0};
    for (const bool inner : {false, true, true, false}) {
      const bool candidate = inner != outside;
      const double value = 1e9 * (candidate ? ratio : 1) * std::exp(noise() - drift * block++);
      (candidate ? figures.candidate : figures.baseline)[taken[candidate ? 1 : 0]++] = value;
    }
    logs.push_back(log_advantage(figures, Better::kHigher));
  }
  return logs;
}

TEST(QuadOrders, AreBalancedAndFollowTheSeed) {
  for (const std::size_t quads : {1UL, 2UL, 21UL, 40UL}) {
    const std::vector<bool> orders = quad_orders(quads, 7);
    ASSERT_EQ(orders.size(), quads);
    EXPECT_EQ(static_cast<std::size_t>(std::count(orders.begin(), orders.end(), true)), quads / 2);
  }
  EXPECT_EQ(quad_orders(40, 7), quad_orders(40, 7));
  EXPECT_NE(quad_orders(40, 7), quad_orders(40, 8));
}

TEST(LogAdvantage, IsPositiveWhereTheCandidateIsBetter) {
  const QuadFigures quad{.baseline = {2, 8}, .candidate = {8, 8}};
  EXPECT_NEAR(log_advantage(quad, Better::kHigher), std::log(2), 1e-12);
  EXPECT_NEAR(log_advantage(quad, Better::kLower), -std::log(2), 1e-12);
}

TEST(Median, IsTheMiddle) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({9, 1, 2}), 2);
  EXPECT_EQ(median({9, 1, 2, 4}), 3);
}

TEST(RatioOf, IsTheSameForTheSameSeed) {
  const std::vector<double> logs = made(1.2, 24, 1);
  const Ratio first = ratio_of(logs, kConfidence, 5);
  const Ratio second = ratio_of(logs, kConfidence, 5);
  EXPECT_EQ(first.low, second.low);
  EXPECT_EQ(first.high, second.high);
  EXPECT_LE(first.low, first.ratio);
  EXPECT_LE(first.ratio, first.high);
}

TEST(RatioOf, OfNothingSaysNothing) {
  const Ratio none = ratio_of({}, kConfidence, 1);
  EXPECT_EQ(none.quads, 0U);
  EXPECT_EQ(verdict_of(none, true), Verdict::kInconclusive);
}

TEST(RatioOf, AnIntervalBeyondTheDrawsIsBetweenOrderStatistics) {
  std::vector<double> logs;
  for (int i = 0; i < 24; ++i) logs.push_back(std::log(1 + i));
  // Of 24 values at most 2 lie below the median with a chance of 301 / 2^24 = 1.8e-5, at most 3 with 1.4e-4.
  const Ratio sure = ratio_of(logs, 1 - 2 * 1e-4, 1);
  EXPECT_NEAR(sure.low, 3, 1e-9);
  EXPECT_NEAR(sure.high, 22, 1e-9);
  EXPECT_EQ(sure.confidence, 1 - 2 * 1e-4);
  const Ratio few = ratio_of(std::span(logs).first(5), 0.999, 1);
  EXPECT_NEAR(few.low, 1, 1e-9);
  EXPECT_NEAR(few.high, 5, 1e-9);
  EXPECT_EQ(few.confidence, 1 - 2.0 / 32) << "five values are no surer";
}

TEST(RatioOf, FindsKnownRatios) {
  for (const double truth : {0.5, 0.9, 1.1, 2.0, 5.4}) {
    unsigned found = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      const Ratio ratio = ratio_of(made(truth, 24, seed), kConfidence, seed, kResamples);
      found += verdict_of(ratio, true) == (truth > 1 ? Verdict::kCandidate : Verdict::kBaseline) ? 1U : 0U;
    }
    EXPECT_GE(found, 18U) << truth;
  }
}

TEST(RatioOf, DriftFavoursNeither) {
  // 1 % slower from block to block: by the last quad a third of the speed is left.
  const Ratio ratio = ratio_of(made(1, 24, 3, 0.01), kConfidence, 3);
  EXPECT_LT(ratio.low, 1);
  EXPECT_GT(ratio.high, 1);
}

TEST(RatioOf, IntervalsCoverTheTruthAsOftenAsTheySay) {
  constexpr unsigned kTrials = 200;
  for (const std::size_t quads : {20UL, 24UL}) {
    unsigned covered = 0;
    for (std::uint64_t seed = 1; seed <= kTrials; ++seed) {
      const Ratio ratio = ratio_of(made(1.3, quads, seed), kConfidence, seed, kResamples);
      covered += ratio.low <= 1.3 && 1.3 <= ratio.high ? 1U : 0U;
    }
    // 99 % of 200, less four standard deviations of such a count.
    EXPECT_GE(covered, 198U - 6U) << quads;
  }
}

TEST(VerdictOf, ClaimsOnlyWhatTheIntervalBears) {
  const auto verdict = [](double low, double high, bool equal = true, std::size_t quads = kFewestQuads) {
    return verdict_of({.ratio = (low + high) / 2, .low = low, .high = high, .confidence = kConfidence, .quads = quads},
                      equal);
  };
  EXPECT_EQ(verdict(1.5, 2.5), Verdict::kCandidate);
  EXPECT_EQ(verdict(0.5, 0.9), Verdict::kBaseline);
  EXPECT_EQ(verdict(0.98, 1.02), Verdict::kNoDifference);
  EXPECT_EQ(verdict(1.005, 1.02), Verdict::kNoDifference);  // different, and not worth a word
  EXPECT_EQ(verdict(1.005, 1.2), Verdict::kCandidate);
  EXPECT_EQ(verdict(0.9, 1.2), Verdict::kInconclusive);
  EXPECT_EQ(verdict(1, 1.2), Verdict::kInconclusive);
  EXPECT_EQ(verdict(1.5, 2.5, true, kFewestQuads - 1), Verdict::kInconclusive);
  EXPECT_EQ(verdict(1.5, 2.5, false), Verdict::kUnequalTerms);
  EXPECT_EQ(verdict(0.5, 0.9, false), Verdict::kUnequalTerms);
  EXPECT_EQ(verdict(0.98, 1.02, false), Verdict::kUnequalTerms);
}

TEST(VerdictOf, NamesWhoIsFaster) {
  EXPECT_EQ(to_string(Verdict::kCandidate, "tcp", "verbs:soft0"), "rdma_faster");
  EXPECT_EQ(to_string(Verdict::kBaseline, "tcp", "verbs:soft0"), "tcp_faster");
  EXPECT_EQ(to_string(Verdict::kCandidate, "verbs:mlx5_0", "tcp"), "tcp_faster");
  EXPECT_EQ(to_string(Verdict::kCandidate, "tcp", "shm"), "shm_faster");
  EXPECT_EQ(to_string(Verdict::kCandidate, "tcp", "tcp"), "candidate_faster");
  EXPECT_EQ(to_string(Verdict::kBaseline, "verbs:soft0", "verbs:soft1"), "baseline_faster");
  EXPECT_EQ(to_string(Verdict::kUnequalTerms, "tcp", "shm"), "unequal_terms");
}

// Runs of `fairlead gain` with the same transport on both sides, by scripts/measure_gain_aa --record: each line has the
// quads of one, and of its control, as [[baseline, baseline, candidate, candidate], ...] in bytes per second.
TEST(Recorded, ASideBesideItselfIsNoDifference) {
  const auto claims = [](const Json& set, const char* quads) {
    std::vector<double> logs;
    for (const Json& quad : *set.find(quads)->array()) {
      const auto value = [&quad](std::size_t i) { return quad.array()->at(i).number().value(); };
      logs.push_back(log_advantage({{value(0), value(1)}, {value(2), value(3)}}, Better::kHigher));
    }
    const Verdict verdict = verdict_of(ratio_of(logs, kConfidence, set.find("seed")->uint().value()), true);
    return verdict == Verdict::kCandidate || verdict == Verdict::kBaseline;
  };
  std::ifstream file(std::string(FAIRLEAD_SOURCE_DIR) + "/tests/bench/gain_recorded_aa.jsonl");
  unsigned sets = 0, claimed = 0;
  for (std::string line; std::getline(file, line); ++sets) {
    const Result<Json> set = Json::parse(line);
    ASSERT_TRUE(set) << set.error().to_string();
    claimed += claims(*set, "quads") && !claims(*set, "control") ? 1U : 0U;
  }
  EXPECT_EQ(sets, 20U);
  EXPECT_EQ(claimed, 0U);
}

}  // namespace
}  // namespace fairlead::bench
