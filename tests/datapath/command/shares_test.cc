// Who gets how much of a device, by simulation: members that want turns, over a clock of the test's own.
#include "datapath/command/shares.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <vector>

namespace fairlead::datapath::command {
namespace {

using fairlead::command::Sharing;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = Shares::Clock;

/// One that always has more to run, in turns of that length, but while `rests` says so.
struct Greedy {
  Clock::duration turn;
  double share = 1;
  std::function<bool(Clock::duration)> rests = [](auto) { return false; };
};

/// What fraction of `length` each had. Between turns goes `gap`.
std::vector<double> simulate(Sharing sharing, const std::vector<Greedy>& all, Clock::duration length = seconds(10),
                             Clock::duration gap = microseconds(1)) {
  const Clock::time_point begin{seconds(100)};
  Clock::time_point now = begin;
  Shares shares(sharing);
  std::vector<Shares::Member> members;
  std::vector<double> had(all.size());
  for (const Greedy& each : all) members.push_back(shares.join(each.share, now));
  std::mt19937 random(3);
  while (now < begin + length) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].rests(now - begin)) {
        shares.rest(members[i]);
      } else {
        shares.want(members[i]);
      }
    }
    const Shares::Choice choice = shares.next(now);
    if (!choice.member) {
      EXPECT_GT(choice.again, now) << "or it would be asked for ever";
      now = std::min(choice.again, now + milliseconds(1));
      continue;
    }
    const auto i = static_cast<std::size_t>(std::ranges::find(members, *choice.member) - members.begin());
    // As turns are: not all of the same length.
    const auto took = std::chrono::duration_cast<Clock::duration>(
        all[i].turn * std::uniform_real_distribution<double>(0.7, 1.3)(random));
    now += took;
    shares.ran(*choice.member, took);
    had[i] += std::chrono::duration<double>(took) / std::chrono::duration<double>(length);
    now += gap;
  }
  return had;
}

constexpr double kWithin = 0.05;

TEST(Shares, BestEffortGoesByTurns) {
  const std::vector<double> had =
      simulate(Sharing::kBestEffort, {{microseconds(200)}, {microseconds(200)}, {microseconds(200)}});
  for (const double each : had) EXPECT_NEAR(each, 1.0 / 3, kWithin / 3);
  const std::vector<double> uneven = simulate(Sharing::kBestEffort, {{milliseconds(2)}, {microseconds(200)}});
  EXPECT_NEAR(uneven[0] / uneven[1], 10, 0.5) << "turns are what is equal, not time";
}

TEST(Shares, BestEffortLendsOut) {
  const auto rests = [](Clock::duration) { return true; };
  const std::vector<double> had = simulate(Sharing::kBestEffort, {{microseconds(200)}, {microseconds(200), 1, rests}});
  EXPECT_GT(had[0], 0.98);
  EXPECT_EQ(had[1], 0);
}

TEST(Shares, EqualIsOfTimeHoweverLongTurnsAre) {
  const std::vector<double> had =
      simulate(Sharing::kEqual, {{microseconds(200)}, {milliseconds(5)}, {microseconds(20)}});
  for (const double each : had) EXPECT_NEAR(each, 1.0 / 3, kWithin / 3);
}

TEST(Shares, EqualIsAmongThoseThatAreActive) {
  // The third comes after half of the time, and had no claim on what was before.
  const auto second_half = [](Clock::duration at) { return at < seconds(5); };
  const std::vector<double> had =
      simulate(Sharing::kEqual, {{microseconds(200)}, {microseconds(200)}, {microseconds(200), 1, second_half}});
  EXPECT_NEAR(had[0], 0.25 + 1.0 / 6, 0.02);
  EXPECT_NEAR(had[1], 0.25 + 1.0 / 6, 0.02);
  EXPECT_NEAR(had[2], 1.0 / 6, 0.01);
}

TEST(Shares, EqualForgivesShortPauses) {
  // As of a client that waits for a reply now and then: half of the time, a millisecond each.
  const auto blinks = [](Clock::duration at) { return at.count() / 1'000'000 % 2 == 1; };
  const std::vector<double> had = simulate(Sharing::kEqual, {{microseconds(200)}, {microseconds(200), 1, blinks}});
  EXPECT_NEAR(had[1], 0.5, kWithin);
}

TEST(Shares, FixedIsKeptAndNotLentOut) {
  const auto rests = [](Clock::duration) { return true; };
  const std::vector<double> all =
      simulate(Sharing::kFixed, {{microseconds(200), 0.5}, {milliseconds(3), 0.3}, {microseconds(50), 0.2}});
  EXPECT_NEAR(all[0], 0.5, 0.5 * kWithin);
  EXPECT_NEAR(all[1], 0.3, 0.3 * kWithin);
  EXPECT_NEAR(all[2], 0.2, 0.2 * kWithin);
  const std::vector<double> alone =
      simulate(Sharing::kFixed, {{microseconds(200), 0.25}, {microseconds(200), 0.75, rests}});
  EXPECT_NEAR(alone[0], 0.25, 0.25 * kWithin);
  EXPECT_EQ(alone[1], 0);
}

TEST(Shares, FixedSharesHoldWhereTimeIsLostBetweenTurns) {
  // 10 % of the time is nobody's, so all have more than there is: what there is goes by their shares.
  const std::vector<double> had =
      simulate(Sharing::kFixed, {{microseconds(200), 0.5}, {microseconds(200), 0.3}, {microseconds(200), 0.2}},
               seconds(10), microseconds(20));
  const double sum = had[0] + had[1] + had[2];
  EXPECT_NEAR(had[0] / sum, 0.5, 0.5 * kWithin);
  EXPECT_NEAR(had[1] / sum, 0.3, 0.3 * kWithin);
  EXPECT_NEAR(had[2] / sum, 0.2, 0.2 * kWithin);
}

TEST(Shares, ManyMembersAreAllServed) {
  for (const Sharing sharing : {Sharing::kBestEffort, Sharing::kEqual, Sharing::kFixed}) {
    const std::vector<double> had = simulate(sharing, std::vector<Greedy>(64, {microseconds(200), 1.0 / 64}));
    for (const double each : had) EXPECT_NEAR(each, 1.0 / 64, kWithin / 64);
  }
}

TEST(Shares, ADebtIsPaidBeforeTheNextTurn) {
  const Clock::time_point begin{seconds(1)};
  Shares shares(Sharing::kFixed);
  const Shares::Member member = shares.join(0.1, begin);
  shares.want(member);
  ASSERT_TRUE(shares.next(begin).member);
  shares.ran(member, seconds(1));
  const Shares::Choice choice = shares.next(begin + seconds(1));
  EXPECT_FALSE(choice.member);
  EXPECT_GT(choice.again, begin + seconds(9));
  EXPECT_LT(choice.again, begin + seconds(11));
  EXPECT_FALSE(shares.next(choice.again - milliseconds(1)).member);
  EXPECT_TRUE(shares.next(choice.again).member);
}

TEST(Shares, NobodyWantsATurn) {
  Shares shares(Sharing::kEqual);
  (void)shares.join(1, Clock::time_point{});
  EXPECT_FALSE(shares.next(Clock::time_point{}).member);
  EXPECT_EQ(shares.next(Clock::time_point{}).again, Clock::time_point::max());
}

}  // namespace
}  // namespace fairlead::datapath::command
