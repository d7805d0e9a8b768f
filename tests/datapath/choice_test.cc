#include "datapath/flow/choice.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace fairlead::datapath {
namespace {

const Offer kMlx{"verbs:mlx5_0", "verbs", false};
const Offer kSoft{"verbs:soft0", "verbs", true};
const Offer kTcp{"tcp", "tcp", false};

std::vector<std::string> names(const std::string& wanted, bool failover, const std::vector<Offer>& ours,
                               const std::vector<Offer>& theirs) {
  std::vector<std::string> list;
  for (const Candidate& c : choose(wanted, failover, ours, theirs).candidates) {
    list.push_back(ours[c.local].name + ">" + theirs[c.remote].name);
  }
  return list;
}

using Names = std::vector<std::string>;

TEST(Choice, AutoPrefersHardwareThenTcpThenSoftware) {
  EXPECT_EQ(names("auto", true, {kSoft, kTcp, kMlx}, {kTcp, kMlx}),
            (Names{"verbs:mlx5_0>verbs:mlx5_0", "tcp>tcp", "verbs:soft0>verbs:mlx5_0"}));
  EXPECT_EQ(names("auto", true, {kMlx, kTcp}, {kSoft, kTcp}), (Names{"tcp>tcp", "verbs:mlx5_0>verbs:soft0"}));
}

TEST(Choice, WhatWasAskedForComesFirstAndAloneWithoutFailover) {
  EXPECT_EQ(names("verbs:soft0", true, {kSoft, kTcp}, {kTcp, kSoft}), (Names{"verbs:soft0>verbs:soft0", "tcp>tcp"}));
  EXPECT_EQ(names("verbs:soft0", false, {kSoft, kTcp}, {kTcp, kSoft}), (Names{"verbs:soft0>verbs:soft0"}));
  EXPECT_EQ(names("verbs", false, {kMlx, kSoft, kTcp}, {kTcp, kSoft}),
            (Names{"verbs:mlx5_0>verbs:soft0", "verbs:soft0>verbs:soft0"}));
  EXPECT_EQ(names("auto", false, {kMlx, kTcp}, {kTcp, kMlx}), (Names{"verbs:mlx5_0>verbs:mlx5_0"}));
}

TEST(Choice, APolicyLeavesOut) {
  const std::vector<Offer> ours{kMlx, kSoft, kTcp}, theirs{kTcp, kMlx};
  const auto chosen = [&](const Policy& policy) {
    Names list;
    for (const Candidate& c : choose("auto", true, ours, theirs, policy).candidates) list.push_back(ours[c.local].name);
    return list;
  };
  EXPECT_EQ(chosen({}), (Names{"verbs:mlx5_0", "tcp", "verbs:soft0"}));
  EXPECT_EQ(chosen({{}, {"tcp"}}), (Names{"verbs:mlx5_0", "verbs:soft0"}));
  EXPECT_EQ(chosen({{}, {"software", "hardware"}}), (Names{"tcp"}));
  EXPECT_EQ(chosen({{"verbs"}, {}}), (Names{"verbs:mlx5_0", "verbs:soft0"}));
  EXPECT_EQ(chosen({{"verbs:soft0", "tcp"}, {}}), (Names{"tcp", "verbs:soft0"}));
  EXPECT_EQ(chosen({{"verbs"}, {"verbs:mlx5_0"}}), (Names{"verbs:soft0"}));
  const Choice none = choose("auto", true, ours, theirs, {{"hardware"}, {"verbs"}});
  EXPECT_TRUE(none.candidates.empty());
  EXPECT_EQ(none.rejected,
            (Names{"verbs:mlx5_0: forbidden here (forbid: verbs)", "verbs:soft0: forbidden here (forbid: verbs)",
                   "tcp: not what is required here (require: hardware)"}));
}

TEST(Choice, SaysWhyThereIsNone) {
  const Choice choice = choose("verbs:soft0", false, {kSoft, kTcp}, {kTcp});
  EXPECT_TRUE(choice.candidates.empty());
  ASSERT_EQ(choice.rejected.size(), 1u);
  EXPECT_EQ(choice.rejected[0], "verbs:soft0: the peer offers no verbs");
}

/// Which candidate is the first choice of each path beside the first, and how many it may fall back to.
std::vector<std::pair<std::size_t, std::size_t>> spread_over(const std::vector<Candidate>& candidates,
                                                             std::size_t paths, std::size_t first = 0) {
  std::vector<std::pair<std::size_t, std::size_t>> rails;
  for (const std::vector<Candidate>& rail : spread(candidates, first, paths)) {
    const auto at = std::ranges::find_if(candidates, [&](const Candidate& c) {
      return c.local == rail.front().local && c.remote == rail.front().remote;
    });
    rails.emplace_back(at - candidates.begin(), rail.size());
  }
  return rails;
}

using Rails = std::vector<std::pair<std::size_t, std::size_t>>;

TEST(Spread, UsesEachDeviceOfBothEndsOnceBeforeAnyTwice) {
  const std::vector<Candidate> square{{0, 0, "", 1}, {0, 1, "", 1}, {1, 0, "", 1}, {1, 1, "", 1}, {2, 2, "", 2}};
  EXPECT_EQ(spread_over(square, 1), Rails{});
  EXPECT_EQ(spread_over(square, 2), (Rails{{3, 4}}));
  EXPECT_EQ(spread_over(square, 4), (Rails{{3, 4}, {0, 4}, {3, 4}})) << "further streams over the same pairs";
  EXPECT_EQ(spread_over(square, 2, 1), (Rails{{2, 4}}));
}

TEST(Spread, StaysWithTheRankOfTheFirst) {
  const std::vector<Candidate> mixed{{0, 0, "", 1}, {1, 1, "", 2}, {2, 2, "", 2}};
  EXPECT_EQ(spread_over(mixed, 3), (Rails{{0, 1}, {0, 1}}));
  EXPECT_EQ(spread_over(mixed, 2, 1), (Rails{{2, 2}}));
}

TEST(Spread, OneDeviceThereServesSeveralHere) {
  EXPECT_EQ(spread_over({{0, 0, "", 1}, {1, 0, "", 1}}, 3), (Rails{{1, 2}, {0, 2}}));
}

}  // namespace
}  // namespace fairlead::datapath
