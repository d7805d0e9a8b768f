#include "bench/net/histogram.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace fairlead::bench {
namespace {

TEST(Histogram, EmptyIsZero) {
  const Histogram histogram;
  EXPECT_EQ(histogram.count(), 0U);
  EXPECT_EQ(histogram.min(), 0U);
  EXPECT_EQ(histogram.max(), 0U);
  EXPECT_EQ(histogram.percentile(50), 0U);
}

TEST(Histogram, SmallValuesAreExact) {
  Histogram histogram;
  for (std::uint64_t value = 1; value <= 100; ++value) histogram.record(value);
  EXPECT_EQ(histogram.percentile(0), 1U);
  EXPECT_EQ(histogram.percentile(50), 50U);
  EXPECT_EQ(histogram.percentile(99), 99U);
  EXPECT_EQ(histogram.percentile(99.9), 100U);
  EXPECT_EQ(histogram.percentile(100), 100U);
}

TEST(Histogram, RelativeErrorIsBelowOnePercentOverTheWholeRange) {
  for (double exponent = 0; exponent < 64; exponent += 0.01) {
    const auto value = static_cast<std::uint64_t>(std::min(std::exp2(exponent), 1.8e19));
    Histogram histogram;
    histogram.record(value - value / 3);  // so that clamping to min and max does not help
    histogram.record(value);
    histogram.record(~std::uint64_t{0});
    const double error = std::abs(static_cast<double>(histogram.percentile(66)) / static_cast<double>(value) - 1);
    EXPECT_LT(error, 0.005) << value;
  }
}

TEST(Histogram, PercentilesOfRandomValuesMatchSorting) {
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> distribution(9, 1.5);
  Histogram histogram;
  std::vector<std::uint64_t> values;
  for (int i = 0; i < 200'000; ++i) {
    values.push_back(static_cast<std::uint64_t>(distribution(random)));
    histogram.record(values.back());
  }
  std::sort(values.begin(), values.end());
  for (const double percent : {1.0, 50.0, 90.0, 99.0, 99.9, 99.99}) {
    const auto rank = static_cast<std::size_t>(std::ceil(percent / 100 * static_cast<double>(values.size())));
    const auto exact = static_cast<double>(values[rank - 1]);
    EXPECT_NEAR(static_cast<double>(histogram.percentile(percent)), exact, 0.01 * exact) << percent;
  }
  EXPECT_EQ(histogram.min(), values.front());
  EXPECT_EQ(histogram.max(), values.back());
}

// 99.9 has no binary fraction: of a thousand values it is the 999th, and no outlier.
TEST(Histogram, TheRankOfAPercentileIsExactWhereItIsWhole) {
  for (std::uint64_t thousands = 1; thousands <= 10; ++thousands) {
    Histogram histogram;
    for (std::uint64_t i = 0; i < 999 * thousands; ++i) histogram.record(10);
    for (std::uint64_t i = 0; i < thousands; ++i) histogram.record(1'000'000);
    EXPECT_LE(histogram.percentile(99.9), 11U) << thousands;
    EXPECT_GT(histogram.percentile(99.91), 900'000U) << thousands;
  }
}

TEST(Histogram, ExtremesAndClear) {
  Histogram histogram;
  histogram.record(0);
  histogram.record(~std::uint64_t{0});
  EXPECT_EQ(histogram.percentile(50), 0U);
  EXPECT_EQ(histogram.percentile(100), ~std::uint64_t{0});
  histogram.clear();
  EXPECT_EQ(histogram.count(), 0U);
  histogram.record(5);
  EXPECT_EQ(histogram.percentile(99), 5U);
}

TEST(Histogram, MeanAndDeviationAreThoseOfTheValues) {
  Histogram none, small, large;
  EXPECT_EQ(none.mean(), 0);
  EXPECT_EQ(none.deviation(), 0);
  for (const std::uint64_t value : {2U, 4U, 4U, 4U, 5U, 5U, 7U, 9U}) {
    small.record(value);
    large.record(value * 1'000'000);
  }
  EXPECT_DOUBLE_EQ(small.mean(), 5);
  EXPECT_DOUBLE_EQ(small.deviation(), 2);
  EXPECT_NEAR(large.mean(), 5e6, 5e6 * 0.004);
  EXPECT_NEAR(large.deviation(), 2e6, 9e6 * 0.004);
}

}  // namespace
}  // namespace fairlead::bench
