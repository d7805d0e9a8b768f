#include "datapath/flow/choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "datapath/flow/figures.h"
#include "datapath/flow/measurement.h"

namespace fairlead::datapath {
namespace {

const Offer kMlx{"verbs:mlx5_0", "verbs", false};
const Offer kSoft{"verbs:soft0", "verbs", true};
const Offer kTcp{"tcp", "tcp", false};
const Offer kShm{"shm", "shm@0123456789abcdef", false}, kShmElsewhere{"shm", "shm@fedcba9876543210", false};

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

TEST(Choice, AutoPrefersMemoryOfOneHostAndNeverTriesThatOfTwo) {
  EXPECT_EQ(names("auto", true, {kShm, kTcp, kMlx}, {kTcp, kMlx, kShm}),
            (Names{"shm>shm", "verbs:mlx5_0>verbs:mlx5_0", "tcp>tcp"}));
  EXPECT_EQ(names("auto", true, {kShm, kTcp}, {kTcp, kShmElsewhere}), Names{"tcp>tcp"});
  EXPECT_EQ(names("tcp", true, {kShm, kTcp}, {kTcp, kShm}), (Names{"tcp>tcp", "shm>shm"}));
  EXPECT_EQ(names("shm", true, {kTcp, kShm}, {kTcp, kShm}), (Names{"shm>shm", "tcp>tcp"}));
  EXPECT_EQ(choose("auto", true, {kShm, kTcp}, {kTcp, kShmElsewhere}).rejected,
            Names{"shm: the peer is of another host, user or network namespace"});
  EXPECT_EQ(choose("auto", true, {kShm, kTcp}, {kTcp}).rejected, Names{"shm: the peer offers no shm"});
  EXPECT_EQ(why_not({{}, {"shm"}}, kShm), "forbidden here (forbid: shm)");
  EXPECT_EQ(why_not({{"hardware"}, {}}, kShm), "not what is required here (require: hardware)");
}

// They may not meet there after all.
TEST(Choice, BehindMemoryOfOneHostAnotherStandsByWithoutFailover) {
  EXPECT_EQ(names("auto", false, {kShm, kTcp, kMlx, kSoft}, {kTcp, kMlx, kShm}),
            (Names{"shm>shm", "verbs:mlx5_0>verbs:mlx5_0"}));
  EXPECT_EQ(names("auto", false, {kShm, kTcp}, {kTcp, kShm}), (Names{"shm>shm", "tcp>tcp"}));
  EXPECT_EQ(names("auto", false, {kShm}, {kShm}), Names{"shm>shm"});
  EXPECT_EQ(names("auto", false, {kShm, kTcp, kSoft}, {kTcp, kSoft, kShmElsewhere}), Names{"tcp>tcp"});
  EXPECT_EQ(names("shm", false, {kShm, kTcp}, {kTcp, kShm}), Names{"shm>shm"});
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

TEST(ByWayOf, EachGoesByWayOfEachHostBehindItself) {
  const std::vector<Candidate> all = by_way_of({{0, 0, "a", 0}, {1, 1, "b", 1}}, {"10.1.0.2", "10.2.0.2"});
  std::vector<std::string> seen;
  for (const Candidate& c : all) seen.push_back(c.reason + "@" + c.host);
  EXPECT_EQ(seen, (std::vector<std::string>{"a@", "a@10.1.0.2", "a@10.2.0.2", "b@", "b@10.1.0.2", "b@10.2.0.2"}));
  EXPECT_EQ(by_way_of({{0, 0, "a", 0}}, {}).size(), 1U);
}

TEST(ByWayOf, FurtherPathsUseOtherHostsFirst) {
  const std::vector<Candidate> all = by_way_of({{0, 0, "a", 0}}, {"10.1.0.2"});
  const auto rails = spread(all, 0, 3);
  ASSERT_EQ(rails.size(), 2U);
  EXPECT_EQ(rails[0].front().host, "10.1.0.2");
  EXPECT_EQ(rails[1].front().host, "") << "as evenly as can be";
}

// ---- figures

using std::chrono::microseconds;
using std::chrono::seconds;

const Clock::time_point kStart{seconds(1000)};
const Figures::Way kTcpWay{"tcp", 0, "10.0.0.2"}, kSoftWay{"verbs:soft0", 1, "10.0.0.2"};
constexpr TrafficClass kBulk = TrafficClass::kBulk, kCommands = TrafficClass::kCommands;

Figure at(int us, double rate) { return {microseconds(us), rate}; }

TEST(Figures, AreSaidInWords) {
  EXPECT_EQ(to_string(at(23, 1.234e9)), "23 us, 1.23 GB/s");
  EXPECT_EQ(to_string(Figure{std::chrono::nanoseconds(2340), 9e8}), "2.3 us, 900 MB/s");
  EXPECT_EQ(to_string(at(40'000, 1e6)), "40 ms, 1 MB/s");
}

TEST(Figures, CommandsCostARoundTripAndBulkItsBytesToo) {
  EXPECT_EQ(cost(at(100, 1e9), kCommands), microseconds(100));
  EXPECT_EQ(cost(at(100, double{1 << 20} * 1000), kBulk), microseconds(1100));
}

TEST(Figures, BetterIsBetterTwiceInARow) {
  Figures figures;
  EXPECT_FALSE(figures.better(kTcpWay, kSoftWay, kBulk)) << "nothing is known";
  figures.add(kSoftWay, at(100, 1e8), kStart);
  figures.add(kTcpWay, at(50, 1e9), kStart);
  EXPECT_FALSE(figures.better(kTcpWay, kSoftWay, kBulk)) << "once";
  figures.add(kTcpWay, at(50, 1e9), kStart);
  EXPECT_TRUE(figures.better(kTcpWay, kSoftWay, kBulk));
  EXPECT_FALSE(figures.better(kSoftWay, kTcpWay, kBulk));
  figures.add(kTcpWay, at(50, 0.9e8), kStart);
  EXPECT_FALSE(figures.better(kTcpWay, kSoftWay, kBulk)) << "not the last time";
  figures.add(kTcpWay, at(50, 1e9), kStart);
  EXPECT_FALSE(figures.better(kTcpWay, kSoftWay, kBulk));
}

TEST(Figures, BetterIsBetterByAFactor) {
  Figures figures;
  figures.add(kSoftWay, at(100, 1e9), kStart);
  for (int i = 0; i < 2; ++i) figures.add(kTcpWay, at(81, 1e9), kStart);
  EXPECT_FALSE(figures.better(kTcpWay, kSoftWay, kCommands));
  for (int i = 0; i < 2; ++i) figures.add(kTcpWay, at(79, 1e9), kStart);
  EXPECT_TRUE(figures.better(kTcpWay, kSoftWay, kCommands));
}

// One moment in which the path in use was slow moves nobody.
TEST(Figures, TheOneInUseIsJudgedByItsBest) {
  Figures figures;
  figures.add(kSoftWay, at(50, 1e9), kStart);
  figures.add(kSoftWay, at(500, 1e8), kStart);
  for (int i = 0; i < 2; ++i) figures.add(kTcpWay, at(50, 1e9), kStart);
  EXPECT_FALSE(figures.better(kTcpWay, kSoftWay, kBulk));
  figures.add(kSoftWay, at(500, 1e8), kStart);
  EXPECT_TRUE(figures.better(kTcpWay, kSoftWay, kBulk));
}

TEST(Figures, EachClassHasItsOwnBest) {
  Figures figures;
  for (int i = 0; i < 2; ++i) {
    figures.add(kSoftWay, at(10, 1e8), kStart);
    figures.add(kTcpWay, at(100, 1e9), kStart);
  }
  EXPECT_TRUE(figures.better(kSoftWay, kTcpWay, kCommands));
  EXPECT_TRUE(figures.better(kTcpWay, kSoftWay, kBulk));
}

TEST(Figures, AreMeasuredSeldom) {
  Figures figures;
  EXPECT_TRUE(figures.is_due(kTcpWay, kTcpWay, kBulk, kStart));
  figures.add(kTcpWay, at(50, 1e9), kStart);
  figures.add(kSoftWay, at(100, 1e8), kStart);
  EXPECT_FALSE(figures.is_due(kTcpWay, kTcpWay, kBulk, kStart + seconds(2))) << "the one in use";
  EXPECT_FALSE(figures.is_due(kSoftWay, kTcpWay, kBulk, kStart + seconds(2))) << "it is no better";
  EXPECT_FALSE(figures.is_due(kSoftWay, kTcpWay, kBulk, kStart + Figures::kFresh - seconds(1)));
  EXPECT_TRUE(figures.is_due(kSoftWay, kTcpWay, kBulk, kStart + Figures::kFresh));
  EXPECT_FALSE(figures.is_due(kTcpWay, kSoftWay, kBulk, kStart + Figures::kAgain - microseconds(1)));
  EXPECT_TRUE(figures.is_due(kTcpWay, kSoftWay, kBulk, kStart + Figures::kAgain)) << "it looked better";
  figures.add(kTcpWay, at(50, 1e9), kStart);
  EXPECT_FALSE(figures.is_due(kTcpWay, kSoftWay, kBulk, kStart + Figures::kAgain)) << "and is";
}

TEST(Figures, AreBounded) {
  Figures figures;
  for (std::size_t i = 0; i <= Figures::kMost; ++i) {
    figures.add({"tcp", i, ""}, at(1, 1e9), kStart + seconds(i));
  }
  EXPECT_FALSE(figures.last({"tcp", 0, ""})) << "the oldest";
  EXPECT_TRUE(figures.last({"tcp", 1, ""}));
  EXPECT_TRUE(figures.last({"tcp", Figures::kMost, ""}));
}

// ---- measurement

using std::chrono::milliseconds;

/// Carries `rate` bytes per second, one write after the other, and answers half a round trip after each has arrived.
struct Link {
  Link(Clock::duration takes, double carries) : round_trip(takes), rate(carries) {}
  Clock::duration round_trip;
  double rate;
  Clock::time_point now{seconds(1000)};
  Clock::time_point free = now;
  std::deque<Clock::time_point> answers;
  std::uint64_t all = 0, under_way = 0, most_under_way = 0;
  std::deque<std::uint64_t> sizes;
  Clock::duration longest{};  // that a write waited for its answer
  std::deque<Clock::time_point> posted;

  /// Until it is done. False: it never is.
  bool run(Measurement& measurement) {
    for (int i = 0; i < 100'000 && !measurement.done(); ++i) {
      while (const std::uint64_t bytes = measurement.next()) {
        measurement.given(bytes, now);
        free = std::max(free, now) + std::chrono::duration_cast<Clock::duration>(
                                         std::chrono::duration<double>(static_cast<double>(bytes) / rate));
        answers.push_back(free + round_trip);
        posted.push_back(now);
        sizes.push_back(bytes);
        all += bytes;
        under_way += bytes;
        most_under_way = std::max(most_under_way, under_way);
      }
      if (answers.empty()) return false;
      now = answers.front();
      answers.pop_front();
      longest = std::max(longest, now - posted.front());
      posted.pop_front();
      under_way -= sizes.front();
      sizes.pop_front();
      measurement.ended(now);
    }
    return measurement.done();
  }
};

/// Within so many percent of what the link is.
void expect_figure(const Figure& figure, const Link& link, double percent) {
  EXPECT_NEAR(figure.rate, link.rate, link.rate * percent / 100);
  const auto us = [](Clock::duration time) { return std::chrono::duration<double, std::micro>(time).count(); };
  EXPECT_NEAR(us(figure.round_trip), us(link.round_trip), us(link.round_trip) * percent / 100 + 1);
}

TEST(Measurement, FindsWhatALinkCarries) {
  for (const double rate : {1e6, 1e7, 1e8, 1e9, 1e10}) {
    Link link{microseconds(50), rate};
    Measurement measurement(64 * 1024, link.now);
    ASSERT_TRUE(link.run(measurement)) << rate;
    EXPECT_LE(link.all, Measurement::kMostBytes);
    if (rate >= 1e7) expect_figure(measurement.figure(), link, 15);
    EXPECT_NEAR(measurement.figure().rate, rate, rate / 5);
  }
}

TEST(Measurement, AcrossALongWay) {
  Link link{milliseconds(10), 1e8};
  Measurement measurement(64 * 1024, link.now);
  ASSERT_TRUE(link.run(measurement));
  EXPECT_GT(measurement.figure().rate, 1e7) << "by the time that bytes take, and not by round trips";
}

// What waits on a slow link for its answer must not make it look as if it stood still.
TEST(Measurement, ASlowLinkIsNotFilled) {
  for (const double rate : {1e4, 1e5, 1e6, 1e7}) {
    Link link{microseconds(200), rate};
    const Clock::time_point begin = link.now;
    Measurement measurement(64 * 1024, begin);
    ASSERT_TRUE(link.run(measurement)) << rate;
    const auto first_round = std::chrono::duration<double>(static_cast<double>(Measurement::kFirstRound) / rate);
    const auto at_most = std::max<std::chrono::duration<double>>(first_round, milliseconds(5)) + milliseconds(1);
    EXPECT_LE(std::chrono::duration<double>(link.longest), at_most) << rate;
    EXPECT_LE(std::chrono::duration<double>(link.now - begin), Measurement::kMostTime + 3 * at_most) << rate;
  }
}

TEST(Measurement, TheFirstWriteDoesNotCount) {
  Clock::time_point now{seconds(1000)};
  Measurement measurement(64 * 1024, now);
  for (std::size_t i = 0; i < Measurement::kSmallRounds; ++i) {
    ASSERT_EQ(measurement.next(), Measurement::kSmall);
    measurement.given(Measurement::kSmall, now);
    EXPECT_EQ(measurement.next(), 0U) << "one after the other";
    now += i == 0 ? microseconds(5000) : microseconds(20);
    measurement.ended(now);
  }
  EXPECT_EQ(measurement.next(), Measurement::kFirstRound);
  while (!measurement.done()) {
    while (const std::uint64_t bytes = measurement.next()) {
      EXPECT_LE(bytes, 64U * 1024);
      measurement.given(bytes, now);
    }
    now += microseconds(30);
    measurement.ended(now);
  }
  EXPECT_EQ(measurement.figure().round_trip, microseconds(20));
}

TEST(Measurement, PiecesAreNoLargerThanTheOtherEndHasRoomFor) {
  Link link{microseconds(5), 1e9};
  Measurement measurement(1024, link.now);
  for (int i = 0; i < 20'000 && !measurement.done(); ++i) {
    const std::uint64_t bytes = measurement.next();
    ASSERT_LE(bytes, 1024U);
    if (bytes == 0) break;
    measurement.given(bytes, link.now);
    if (measurement.next() == 0) {
      for (std::uint64_t ended = 0; ended < Measurement::kMostRound / 1024; ++ended) measurement.ended(link.now);
      link.now += microseconds(10);
    }
  }
  EXPECT_TRUE(measurement.done());
}

}  // namespace
}  // namespace fairlead::datapath
