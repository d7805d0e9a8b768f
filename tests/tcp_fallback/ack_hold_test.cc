#include "tcp_fallback/ack_hold.h"

#include <gtest/gtest.h>

namespace fairlead::tcp_fallback {
namespace {

/// So many answers until it may wait.
std::uint32_t answers_until_it_waits(AckHold& hold) {
  std::uint32_t answers = 0;
  for (; !hold.may_wait() && answers < 1000; ++answers) hold.answered();
  return answers;
}

TEST(AckHold, AsksForMoreAnswersEachTimeThatItWaitedInVain) {
  AckHold hold;
  EXPECT_EQ(answers_until_it_waits(hold), 1U);
  for (std::uint32_t due = 2; due <= AckHold::kMost; due *= 2) {
    hold.waited_in_vain();
    EXPECT_EQ(answers_until_it_waits(hold), due);
  }
  hold.waited_in_vain();
  EXPECT_EQ(answers_until_it_waits(hold), AckHold::kMost) << "and no more than that";
}

TEST(AckHold, AsManyThatGoAlongMakeGoodForOneTime) {
  AckHold hold;
  for (int times = 0; times < 3; ++times) hold.waited_in_vain();
  EXPECT_EQ(answers_until_it_waits(hold), 8U);
  for (int along = 0; along < 7; ++along) hold.went_along();
  hold.waited_in_vain();
  EXPECT_EQ(answers_until_it_waits(hold), 16U) << "one was lacking, and the row begins anew";
  for (int along = 0; along < 16 + 8; ++along) hold.went_along();
  hold.waited_in_vain();
  EXPECT_EQ(answers_until_it_waits(hold), 8U);
  for (int along = 0; along < 100; ++along) hold.went_along();
  EXPECT_TRUE(hold.may_wait());
  hold.waited_in_vain();
  EXPECT_EQ(answers_until_it_waits(hold), 2U) << "as at first";
}

// Who answers every other time is seldom waited for.
TEST(AckHold, WhoAnswersNowAndThenIsLeftAlone) {
  AckHold hold;
  int in_vain = 0;
  for (int round = 0; round < 10'000; ++round) {
    const bool answers = round % 2 == 0;
    if (!hold.may_wait()) {
      if (answers) hold.answered();
      continue;
    }
    if (answers) {
      hold.went_along();
    } else {
      hold.waited_in_vain();
      ++in_vain;
    }
  }
  EXPECT_LT(in_vain, 100);
}

}  // namespace
}  // namespace fairlead::tcp_fallback
