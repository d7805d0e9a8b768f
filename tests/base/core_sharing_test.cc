#include "base/system/core_sharing.h"

#include <gtest/gtest.h>

namespace fairlead {
namespace {

class CoreSharingTest : public testing::Test {
 protected:
  CoreSharingTest() {
    yields = 0;
    time = 1'000 * kSecond;
    others_take = 0;
    leavings = 0;
    may_leave = true;
    core = 0;
  }
  static Nanos yield() noexcept {
    ++yields;
    return time += others_take;
  }
  static bool leave() noexcept {
    ++leavings;
    return may_leave;
  }
  void offer_after(Nanos idle) { sharing.offer(time, time - idle); }
  /// The answer is there, and takes a while; then the wait for the next.
  void wait_for_another() {
    time += 115 * kMicrosecond;
    offer_after(15 * kMicrosecond);
  }

  static inline int yields = 0, leavings = 0;
  static inline bool may_leave = true;
  static inline int core = 0;
  static inline Nanos time;
  static inline Nanos others_take;
  CoreSharing sharing{{.yield = &yield, .core = []() noexcept { return core; }, .leave = &leave}};
};

TEST_F(CoreSharingTest, WhoIsBusyKeepsItsCore) {
  offer_after(0);
  offer_after(9 * kMicrosecond);
  EXPECT_EQ(yields, 0);
}

TEST_F(CoreSharingTest, WhoIsIdleOffersItAgainAndAgain) {
  others_take = 15 * kMicrosecond;  // the peer, which answers
  for (int i = 0; i < 100; ++i) offer_after(10 * kMicrosecond);
  EXPECT_EQ(yields, 100);
}

TEST_F(CoreSharingTest, AStrangerGetsLittleOfItsTime) {
  others_take = 3 * kMillisecond;
  const Nanos begin = time;
  while (time - begin < kSecond) {
    offer_after(40 * kMicrosecond);
    time += 5 * kMicrosecond;
  }
  EXPECT_NEAR(yields, 1000 / (3 * 33), 1);
}

TEST_F(CoreSharingTest, ThatAStrangerIsElsewhereIsNoMatter) {
  others_take = 3 * kMillisecond;
  for (int i = 0; i < 3; ++i) offer_after(40 * kMicrosecond);
  EXPECT_EQ(yields, 1);
  core = 1;  // where the system has moved us
  offer_after(40 * kMicrosecond);
  EXPECT_EQ(yields, 2);
}

TEST_F(CoreSharingTest, APeerMayTakeItsTime) {
  others_take = 3 * kMillisecond;  // its host held it up
  may_leave = false;
  for (int i = 0; i < 100; ++i) wait_for_another();
  EXPECT_EQ(yields + leavings, 100);
}

TEST_F(CoreSharingTest, AfterAStrangerItIsOfferedAgain) {
  others_take = 2 * kMillisecond;
  offer_after(40 * kMicrosecond);
  others_take = 10 * kMicrosecond;
  time += 63 * kMillisecond;
  offer_after(40 * kMicrosecond);
  EXPECT_EQ(yields, 1);
  time += 2 * kMillisecond;
  for (int i = 0; i < 3; ++i) offer_after(40 * kMicrosecond);
  EXPECT_EQ(yields, 4);
}

TEST_F(CoreSharingTest, WhoseAnswersComeFromItsOwnCoreLeavesIt) {
  others_take = 30 * kMicrosecond;
  for (unsigned i = 0; i <= CoreSharing::kTimesAreNoChance; ++i) {
    EXPECT_EQ(leavings, 0);
    wait_for_another();
  }
  EXPECT_EQ(leavings, 1);
  EXPECT_EQ(yields, CoreSharing::kTimesAreNoChance) << "one that leaves need not yield";
}

TEST_F(CoreSharingTest, WhoseAnswersComeFromElsewhereStays) {
  for (int i = 0; i < 100; ++i) wait_for_another();  // nobody wants the core
  others_take = 30 * kMicrosecond;
  for (int i = 0; i < 100; ++i) {  // somebody does, and is not who answers, but by chance
    wait_for_another();
    if (i % 3 == 0) offer_after(60 * kMicrosecond);
  }
  EXPECT_EQ(leavings, 0);
}

TEST_F(CoreSharingTest, AYieldThatNobodyTookSaysNothing) {
  for (unsigned i = 0; i < CoreSharing::kTimesAreNoChance; ++i) {
    others_take = 0;  // the system goes on with this thread now and then though another waits
    wait_for_another();
    others_take = 30 * kMicrosecond;
    offer_after(20 * kMicrosecond);
  }
  wait_for_another();
  EXPECT_EQ(leavings, 1);
}

TEST_F(CoreSharingTest, WhatWasLongAgoIsAnotherMatter) {
  others_take = 30 * kMicrosecond;
  for (int i = 0; i < 100; ++i) {
    time += 2 * kMillisecond;
    wait_for_another();
  }
  EXPECT_EQ(leavings, 0);
}

TEST_F(CoreSharingTest, WhoLeavesInVainTriesRarely) {
  others_take = 30 * kMicrosecond;
  const Nanos begin = time;
  while (time - begin < 10 * kSecond) wait_for_another();
  EXPECT_GE(leavings, 10) << "after 1, 2, 4, ... 512 ms, and each second";
  EXPECT_LE(leavings, 20);
}

TEST_F(CoreSharingTest, WhoCannotLeaveAsksEachSecond) {
  others_take = 30 * kMicrosecond;
  may_leave = false;
  const Nanos begin = time;
  while (time - begin < 10 * kSecond) wait_for_another();
  EXPECT_GE(leavings, 9);
  EXPECT_LE(leavings, 11);
}

TEST_F(CoreSharingTest, WhoIsTogetherAgainLaterLeavesAtOnce) {
  others_take = 30 * kMicrosecond;
  for (int meeting = 0; meeting < 5; ++meeting) {
    time += kSecond;
    for (unsigned i = 0; i <= CoreSharing::kTimesAreNoChance; ++i) wait_for_another();
    EXPECT_EQ(leavings, meeting + 1);
  }
}

TEST(CoreSharing, TakesTheSystemsYield) {
  const auto now = std::chrono::steady_clock::now();
  this_threads_core().offer(now, now - std::chrono::milliseconds(1));
  EXPECT_GE(std::chrono::steady_clock::now(), now);
}

}  // namespace
}  // namespace fairlead
