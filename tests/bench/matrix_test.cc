// All pairs of ranks: who meets whom, and what is called an outlier.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <set>

#include "bench/matrix/outliers.h"
#include "bench/matrix/report.h"
#include "bench/matrix/tournament.h"
#include "tests/bench/ranks.h"

namespace fairlead::bench {
namespace {

TEST(Tournament, EveryPairMeetsOnceAndNoRankIsInTwoPairsOfATurn) {
  for (const std::size_t ranks : {0U, 1U, 2U, 3U, 4U, 5U, 8U, 13U, 64U}) {
    SCOPED_TRACE(ranks);
    std::set<std::pair<std::size_t, std::size_t>> seen;
    for (const std::vector<Pair>& turn : tournament(ranks)) {
      EXPECT_EQ(turn.size(), ranks / 2);
      std::set<std::size_t> busy;
      for (const auto [from, to] : turn) {
        EXPECT_LT(std::max(from, to), ranks);
        EXPECT_TRUE(busy.insert(from).second && busy.insert(to).second);
        EXPECT_TRUE(seen.insert({from, to}).second);
      }
    }
    EXPECT_EQ(seen.size(), ranks < 2 ? 0 : ranks * (ranks - 1));
  }
}

// Of each pair the same, but what `change` says.
template <typename Change>
Outliers outliers_of(std::size_t ranks, Change change, Better better = Better::kHigher) {
  Grid grid(ranks);
  double noise = 0.97;
  for (const Pair pair : grid.pairs()) {
    noise = noise > 1.02 ? 0.97 : noise + 0.01;  // what machines differ by
    grid.set(pair, 100 * noise * change(pair));
  }
  return find_outliers(grid, better, 1.25);
}

TEST(Outliers, ThereAreNoneWhereAllIsAsUsual) {
  for (const std::size_t ranks : {0U, 1U, 2U, 3U, 8U}) {
    const Outliers found = outliers_of(ranks, [](Pair) { return 1.0; });
    EXPECT_TRUE(found.ranks.empty() && found.pairs.empty());
  }
}

TEST(Outliers, APairIsNamedAndItsRanksAreNot) {
  const Outliers found = outliers_of(5, [](Pair pair) { return pair == Pair{3, 1} ? 0.5 : 1.0; });
  EXPECT_TRUE(found.ranks.empty());
  ASSERT_EQ(found.pairs.size(), 1U);
  EXPECT_EQ(found.pairs[0].pair, (Pair{3, 1}));
  EXPECT_NEAR(found.pairs[0].typical / found.pairs[0].value, 2, 0.1);
}

TEST(Outliers, OfPairsTheWorstIsFirst) {
  const auto slow = [](Pair pair) { return pair == Pair{4, 0} ? 5.0 : pair == Pair{1, 2} ? 3.0 : 1.0; };
  const Outliers found = outliers_of(6, slow, Better::kLower);
  ASSERT_EQ(found.pairs.size(), 2U);
  EXPECT_EQ(found.pairs[0].pair, (Pair{4, 0}));
  EXPECT_EQ(found.pairs[1].pair, (Pair{1, 2}));
}

TEST(Outliers, ARankIsNamedOnceInPlaceOfItsPairs) {
  struct Case {
    Role role;
    bool from, to;
  };
  for (const Case each :
       {Case{Role::kFrom, true, false}, Case{Role::kTo, false, true}, Case{Role::kBoth, true, true}}) {
    for (const std::size_t ranks : {3U, 4U, 9U}) {
      SCOPED_TRACE(std::string(to_string(each.role)) + " of " + std::to_string(ranks));
      const Outliers found = outliers_of(
          ranks, [&](Pair pair) { return (each.from && pair.from == 2) || (each.to && pair.to == 2) ? 0.1 : 1.0; });
      ASSERT_EQ(found.ranks.size(), 1U);
      EXPECT_EQ(found.ranks[0].rank, 2U);
      EXPECT_EQ(found.ranks[0].role, each.role);
      EXPECT_TRUE(found.pairs.empty());
    }
  }
}

TEST(Outliers, WhatIsBetterIsNone) {
  const Outliers found = outliers_of(5, [](Pair pair) { return pair.from == 1 ? 10.0 : 1.0; });
  EXPECT_TRUE(found.ranks.empty() && found.pairs.empty());
}

TEST(Outliers, WhereAllDifferMuchALittleMoreIsNotNamed) {
  double factor = 1;
  const Outliers found = outliers_of(6, [&](Pair pair) {
    factor = factor > 3 ? 1 : factor * 1.3;
    return pair == Pair{0, 1} ? 0.7 : factor;
  });
  EXPECT_TRUE(found.ranks.empty() && found.pairs.empty());
}

TEST(Outliers, OfTwoRanksNeitherIsTheUsual) {
  const Outliers found = outliers_of(2, [](Pair pair) { return pair.from == 1 ? 0.01 : 1.0; });
  EXPECT_TRUE(found.ranks.empty() && found.pairs.empty());
}

TEST(MatrixOf, AllPairsAreMeasuredAndReported) {
  const MatrixPlan plan{.size = 4096, .depth = 2, .duration = 0.01};
  std::vector<std::size_t> told;
  Matrix first;
  expect_ok(run_ranks(3, [&](Group& group) -> Status {
    Matrix matrix;
    Status ended = measure_matrix(group, plan, &matrix, [&](std::size_t done, std::size_t) { told.push_back(done); });
    if (group.rank() == 0) first = std::move(matrix);
    return ended;
  }));
  EXPECT_EQ(told, (std::vector<std::size_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(first.transports, std::vector<std::string>(6, "tcp"));
  for (const Pair pair : first.latency_p50.pairs()) {
    EXPECT_GT(first.bytes_per_second.at(pair), 0);
    EXPECT_GT(first.latency_p50.at(pair), 0);
  }
  first.ranks[1].host = "\x1b<&";
  const std::string drawn = draw(first, find_outliers(first, 1e6));
  EXPECT_EQ(drawn.find('\x1b'), std::string::npos);
  EXPECT_EQ(report(first, plan, {}, 1.25).find("pairs")->array()->size(), 6U);
}

// It is interrupted at rank 0 in its first turn, of which the others know nothing.
TEST(MatrixOf, OneThatWasInterruptedHasTheTurnsThatWereMade) {
  std::atomic<int> stop = 0;
  const std::atomic<int> not_heeded = 1;
  Matrix first;
  expect_ok(run_ranks(3, [&](Group& group) -> Status {
    const MatrixPlan plan{.size = 4096, .depth = 2, .duration = 0.01, .stop = group.rank() == 0 ? &stop : &not_heeded};
    Matrix matrix;
    Status ended = measure_matrix(group, plan, &matrix, [&](std::size_t, std::size_t) { stop = 1; });
    EXPECT_EQ(group.patience(), std::chrono::seconds(61));
    if (group.rank() == 0) first = std::move(matrix);
    return ended;
  }));
  EXPECT_TRUE(first.interrupted);
  EXPECT_EQ(first.turns, 1U);
  EXPECT_EQ(first.latency_p50.measured().size(), 1U);
  const MatrixOutliers outliers = find_outliers(first, 1.25);
  EXPECT_TRUE(outliers.bandwidth.ranks.empty() && outliers.latency.pairs.empty());
  const Json document = report(first, {}, outliers, 1.25);
  EXPECT_EQ(document.find("pairs")->array()->size(), 1U);
  EXPECT_EQ(document.find("interrupted")->boolean(), true);
  EXPECT_TRUE(lines(first, outliers).back().starts_with("interrupted"));
  const std::string drawn = draw(first, outliers);
  EXPECT_EQ(drawn.find("nan"), std::string::npos);
  EXPECT_EQ(drawn.find("inf"), std::string::npos);
}

TEST(MatrixOf, ARankThatIsNotThereAnyMoreEndsAll) {
  const std::vector<Status> ended = run_ranks(3, [](Group& group) -> Status {
    if (group.rank() == 1) return {};
    Matrix matrix;
    return measure_matrix(group, {.size = 4096, .duration = 0.01}, &matrix);
  });
  EXPECT_FALSE(ended[0].ok());
  EXPECT_FALSE(ended[2].ok());
}

// What rank 2 asks of the others is refused: rank 0 is told, and has the other pairs.
TEST(MatrixOf, APairThatFailsIsNamedAndLeavesTheOthers) {
  Matrix first;
  const std::vector<Status> ended = run_ranks(3, [&](Group& group) -> Status {
    std::size_t turns = 0;
    MatrixPlan plan{.size = 4096, .duration = 0.01};
    Matrix matrix;
    if (group.rank() == 2) plan.size = kMaxSize + 1;
    Status status = measure_matrix(group, plan, &matrix, [&](std::size_t, std::size_t) { ++turns; });
    if (group.rank() == 0) {
      EXPECT_EQ(turns, matrix.turns);
      first = std::move(matrix);
    }
    return status;
  });
  EXPECT_NE(ended[0].message().find("rank 2 to rank "), std::string::npos) << ended[0].to_string();
  EXPECT_FALSE(ended[2].ok());
  EXPECT_TRUE(first.interrupted);
  const Json document = report(first, {}, find_outliers(first, 1.25), 1.25);
  ASSERT_NE(document.find("error")->string(), nullptr);
  EXPECT_EQ(*document.find("error")->string(), ended[0].to_string());
  EXPECT_EQ(document.find("interrupted")->boolean(), true);
  EXPECT_EQ(document.find("pairs")->array()->size(), first.latency_p50.measured().size());
}

TEST(MatrixOf, OutliersAreNamedInLinesAndMarkedInTheDrawing) {
  Matrix matrix{.ranks = std::vector<MatrixRank>(5, {"host", "10.0.0.1"}),
                .bytes_per_second = Grid(5),
                .latency_p50 = Grid(5),
                .latency_p99 = Grid(5),
                .transports = std::vector<std::string>(20, "tcp"),
                .turns = 10};
  for (const Pair pair : matrix.latency_p50.pairs()) {
    matrix.bytes_per_second.set(pair, pair.from == 3 ? 1e6 : 10e6);
    matrix.latency_p50.set(pair, pair == Pair{1, 0} ? 40e3 : 10e3);
    matrix.latency_p99.set(pair, 50e3);
  }
  const MatrixOutliers outliers = find_outliers(matrix, 1.25);
  std::vector<std::string> named;
  for (std::string& line : lines(matrix, outliers)) {
    if (line.starts_with("slow")) named.push_back(std::move(line));
  }
  EXPECT_EQ(named,
            (std::vector<std::string>{
                "slow: from rank 3 (10.0.0.1), median bandwidth of its pairs: 1.00 MB/s where 10.00 is usual, 10.0 "
                "times worse",
                "slow: from rank 1 to rank 0, latency: 40.00 us where 10.00 is usual, 4.0 times worse"}));
  const std::string drawn = draw(matrix, outliers);
  std::size_t marked = 0;
  for (std::size_t at = 0; (at = drawn.find("<rect class=\"slow\"", at)) != std::string::npos; ++at) ++marked;
  EXPECT_EQ(marked, 4U + 1U);
}

}  // namespace
}  // namespace fairlead::bench
