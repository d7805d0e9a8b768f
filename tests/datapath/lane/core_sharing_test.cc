#include "datapath/lane/core_sharing.h"

#include <gtest/gtest.h>

namespace fairlead::datapath {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Clock = CoreSharing::Clock;

class CoreSharingTest : public testing::Test {
 protected:
  CoreSharingTest() {
    yields = 0;
    time = Clock::time_point(milliseconds(1'000'000));
    others_take = microseconds(0);
  }
  static Clock::time_point yield() noexcept {
    ++yields;
    return time += others_take;
  }
  void offer_after(microseconds idle) { sharing.offer(time, time - idle); }

  static inline int yields = 0;
  static inline Clock::time_point time;
  static inline microseconds others_take;
  CoreSharing sharing{&yield};
};

TEST_F(CoreSharingTest, WhoIsBusyKeepsItsCore) {
  offer_after(microseconds(0));
  offer_after(microseconds(9));
  EXPECT_EQ(yields, 0);
}

TEST_F(CoreSharingTest, WhoIsIdleOffersItAgainAndAgain) {
  others_take = microseconds(15);  // the peer, which answers
  for (int i = 0; i < 100; ++i) offer_after(microseconds(10));
  EXPECT_EQ(yields, 100);
}

TEST_F(CoreSharingTest, AStrangerGetsLittleOfItsTime) {
  others_take = milliseconds(3);
  const Clock::time_point begin = time;
  while (time - begin < std::chrono::seconds(1)) {
    offer_after(microseconds(40));
    time += microseconds(5);
  }
  EXPECT_NEAR(yields, 1000 / (3 * 33), 1);
}

TEST_F(CoreSharingTest, AfterAStrangerItIsOfferedAgain) {
  others_take = milliseconds(2);
  offer_after(microseconds(40));
  others_take = microseconds(10);
  time += milliseconds(63);
  offer_after(microseconds(40));
  EXPECT_EQ(yields, 1);
  time += milliseconds(2);
  for (int i = 0; i < 3; ++i) offer_after(microseconds(40));
  EXPECT_EQ(yields, 4);
}

// The one that a lane has.
TEST(CoreSharing, TakesTheSystemsYield) {
  CoreSharing sharing;
  const Clock::time_point now = Clock::now();
  sharing.offer(now, now - milliseconds(1));
  EXPECT_GE(Clock::now(), now);
}

}  // namespace
}  // namespace fairlead::datapath
