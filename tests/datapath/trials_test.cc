#include "datapath/flow/trials.h"

#include <gtest/gtest.h>

namespace fairlead::datapath {
namespace {

using std::chrono::milliseconds;

class TrialsTest : public testing::Test {
 protected:
  TrialsTest() { trials.begin(2); }
  [[nodiscard]] std::size_t next() const { return trials.next(now).value_or(99); }

  Trials trials;
  Clock::time_point now{std::chrono::hours(1)};
};

TEST_F(TrialsTest, BeforeAPathWasInUseEachIsTriedOnce) {
  EXPECT_EQ(next(), 0u);
  trials.failed(0, "no cable", now);
  EXPECT_EQ(next(), 1u);
  trials.failed(1, "refused", now);
  EXPECT_EQ(next(), 99u);
  EXPECT_FALSE(trials.next_at());
  EXPECT_EQ(trials.because(0), "no cable");
  EXPECT_EQ(trials.because(1), "refused");
}

TEST_F(TrialsTest, WhatFailedAtFirstMayBeTriedOnceAPathIsInUse) {
  trials.failed(0, "no cable", now);
  trials.in_use();
  now += milliseconds(60);
  EXPECT_TRUE(trials.has_other(1, now));
  trials.failed(1, "reset", now, {.time = milliseconds(5)});
  EXPECT_EQ(next(), 0u);
}

TEST_F(TrialsTest, TheTimeBetweenDoublesAndThenItIsGivenUp) {
  trials.begin(1);
  trials.in_use();
  milliseconds pause = Trials::kFirstPause;
  for (unsigned i = 0; i + 1 < Trials::kMostFailures; ++i, pause *= 2) {
    trials.failed(0, "reset", now, {.time = milliseconds(1)});
    EXPECT_EQ(next(), 99u);
    ASSERT_EQ(trials.next_at(), now + pause) << i;
    now += pause;
    EXPECT_EQ(next(), 0u);
  }
  trials.failed(0, "reset", now);
  EXPECT_FALSE(trials.next_at()) << "for ever";
  now += std::chrono::hours(1);
  EXPECT_EQ(next(), 99u);
}

TEST_F(TrialsTest, WhatWasInUseForLongBeginsAnew) {
  trials.begin(1);
  trials.in_use();
  for (unsigned i = 0; i < 10 * Trials::kMostFailures; ++i) {
    trials.failed(0, "reset", now, {.time = Trials::kLong});
    ASSERT_EQ(trials.next_at(), now + Trials::kFirstPause);
    now += Trials::kFirstPause;
  }
}

// A connection that is reset every second works: what it carried did not have to be carried again.
TEST_F(TrialsTest, WhatCarriedSomethingBeginsAnew) {
  trials.begin(1);
  trials.in_use();
  for (unsigned i = 0; i < 10 * Trials::kMostFailures; ++i) {
    trials.failed(0, "reset", now, {.time = milliseconds(1), .carried = true});
    ASSERT_EQ(trials.next_at(), now + Trials::kFirstPause);
    now += Trials::kFirstPause;
  }
}

TEST_F(TrialsTest, NoneIsGivenUpBeforeItsTime) {
  constexpr std::chrono::seconds kPatience(30);
  trials.begin(1, kPatience);
  trials.in_use();
  const Clock::time_point first = now;
  unsigned failures = 0;
  do {
    trials.failed(0, "no route to host", now);
    ++failures;
    if (trials.next_at()) now = *trials.next_at();
  } while (trials.next_at());
  EXPECT_GE(now - first, kPatience);
  EXPECT_LT(now - first, kPatience + Trials::kFirstPause * (1 << Trials::kMostFailures));
  EXPECT_GT(failures, Trials::kMostFailures);
}

TEST_F(TrialsTest, WhatFailedLeastIsNext) {
  trials.failed(0, "nothing arrives", now);
  trials.in_use();
  now += milliseconds(100);
  EXPECT_EQ(next(), 1u);
  trials.failed(1, "reset", now);
  now += milliseconds(100);
  EXPECT_EQ(next(), 0u) << "the better of two";
}

TEST_F(TrialsTest, WhatWaitsIsNotNext) {
  trials.in_use();
  trials.failed(0, "reset", now);
  EXPECT_EQ(next(), 1u);
  EXPECT_FALSE(trials.has_other(1, now));
  trials.failed(1, "reset", now + milliseconds(10));
  EXPECT_EQ(trials.next_at(), now + Trials::kFirstPause) << "the first of them";
  now += milliseconds(100);
  EXPECT_EQ(next(), 0u);
}

TEST_F(TrialsTest, WhatRanksAboveIsLookedAtAgainAndAgain) {
  trials.in_use();
  EXPECT_FALSE(trials.better(0, now));
  trials.failed(0, "reset", now, {.time = milliseconds(5)});
  EXPECT_FALSE(trials.better(1, now));
  milliseconds pause = Trials::kFirstPause;
  for (unsigned i = 0; i < 2 * Trials::kMostDoublings; ++i) {
    now += pause - milliseconds(1);
    EXPECT_FALSE(trials.better(1, now)) << i;
    now += milliseconds(1);
    EXPECT_EQ(trials.better(1, now), 0u) << i;
    trials.failed_beside(0, "no cable", now);
    if (i < Trials::kMostDoublings) pause *= 2;
  }
  EXPECT_EQ(trials.because(0), "no cable");
  EXPECT_TRUE(trials.has_other(1, now)) << "it is not given up for that";
}

TEST_F(TrialsTest, WhatWasInUseForLongIsLookedAtSoon) {
  trials.in_use();
  for (int i = 0; i < 5; ++i) trials.failed_beside(0, "no cable", now);
  trials.failed(0, "reset", now, {.time = Trials::kLong});
  EXPECT_EQ(trials.better(1, now + Trials::kFirstPause), 0u);
}

}  // namespace
}  // namespace fairlead::datapath
