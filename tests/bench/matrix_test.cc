// All pairs of ranks: who meets whom, and what is called an outlier.
#include <gtest/gtest.h>

#include <set>

#include "bench/matrix/outliers.h"
#include "bench/matrix/tournament.h"

namespace fairlead::bench {
namespace {

TEST(Tournament, EveryPairMeetsOnceAndNoRankIsInTwoPairsOfATurn) {
  for (const std::size_t ranks : {0, 1, 2, 3, 4, 5, 8, 13, 64}) {
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
  for (const std::size_t ranks : {0, 1, 2, 3, 8}) {
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
  for (const Case each : {Case{Role::kFrom, true, false}, Case{Role::kTo, false, true}, Case{Role::kBoth, true, true}}) {
    for (const std::size_t ranks : {3, 4, 9}) {
      SCOPED_TRACE(std::string(to_string(each.role)) + " of " + std::to_string(ranks));
      const Outliers found = outliers_of(ranks, [&](Pair pair) {
        return (each.from && pair.from == 2) || (each.to && pair.to == 2) ? 0.1 : 1.0;
      });
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

}  // namespace
}  // namespace fairlead::bench
