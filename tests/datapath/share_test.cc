#include "datapath/flow/share.h"

#include <gtest/gtest.h>

#include <deque>

namespace fairlead::datapath {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::uint64_t kStripe = 1000;

class ShareTest : public testing::Test {
 protected:
  /// A path that carries so much in a millisecond and answers after `way`, given all that it may have, for so long.
  void carry(std::uint64_t bytes_per_ms, milliseconds span, milliseconds way = {}) {
    for (const Clock::time_point end = now + span; now < end; now += microseconds(100)) {
      for (; !answers.empty() && answers.front() <= now; answers.pop_front()) share.ended(kStripe, now);
      while (share.room() != 0) {
        share.given(kStripe, now);
        free_at = std::max(free_at, now) + std::chrono::nanoseconds(1'000'000 * kStripe / bytes_per_ms);
        answers.push_back(free_at + way);
      }
    }
  }
  [[nodiscard]] double under_way() const { return static_cast<double>(answers.size() * kStripe); }

  Share share{kStripe};
  Clock::time_point now{milliseconds(1)}, free_at{};
  std::deque<Clock::time_point> answers;
};

TEST_F(ShareTest, BeginsAsIsPlanned) {
  share.reset(4);
  EXPECT_EQ(share.room(), 4 * Share::kFewest * kStripe);
  share.reset(1);
  EXPECT_EQ(share.room(), Share::kFewest * kStripe);
  share.reset(0);
  EXPECT_EQ(share.room(), Share::kFewest * kStripe) << "it is measured, so it is given something";
  share.reset(1e9);
  EXPECT_EQ(share.room(), 8 * Share::kFewest * kStripe) << "the plan may be wrong";
}

// The plan may be wrong: what is carried counts, also where all that it has ends between two looks.
TEST_F(ShareTest, ForgetsThePlanOnceItIsMeasured) {
  share.reset(0);
  carry(50'000, milliseconds(100));
  EXPECT_NEAR(under_way(), 50'000.0 * 4, 50'000.0);
}

TEST_F(ShareTest, BeginsWithAFewStripes) {
  EXPECT_EQ(share.room(), 2 * Share::kFewest * kStripe);
  share.given(3 * kStripe, now);
  EXPECT_EQ(share.room(), (2 * Share::kFewest - 3) * kStripe);
  share.ended(3 * kStripe, now);
  EXPECT_EQ(share.room(), 2 * Share::kFewest * kStripe);
}

TEST_F(ShareTest, IsWhatThePathCarriesInTheTimeAhead) {
  carry(50'000, milliseconds(100));
  EXPECT_NEAR(under_way(), 50'000.0 * 4, 50'000.0);
  carry(10'000, milliseconds(200));
  EXPECT_NEAR(under_way(), 10'000.0 * 4, 10'000.0) << "a path that became slower has less";
}

TEST_F(ShareTest, ASlowPathIsNotStarved) {
  carry(100, milliseconds(1000));
  EXPECT_NEAR(under_way(), Share::kFewest * kStripe, kStripe);
}

TEST_F(ShareTest, ALongWayIsFilled) {
  carry(10'000, milliseconds(2000), milliseconds(40));
  EXPECT_GE(under_way(), 10'000.0 * 40);
}

// Whoever polls comes seldom, and all that the path had is done by then.
TEST_F(ShareTest, APathThatRunsDryBetweenTwoPollsHasMore) {
  const std::uint64_t before = share.room();
  for (int poll = 0; poll < 4; ++poll) {
    const std::uint64_t given = share.room();
    share.given(given, now);
    share.ended(given, now + microseconds(10));  // and nobody looks until
    now += milliseconds(1);
  }
  EXPECT_EQ(share.room(), 16 * before);
  share.given(kStripe, now);
  share.ended(kStripe, now + microseconds(10));
  EXPECT_EQ(share.room(), 16 * before) << "it did not need what it had";
}

TEST_F(ShareTest, BeginsWithWhatWasMeasured) {
  share.expect(50e6);
  EXPECT_EQ(share.room(), 200'000U) << "what goes in the time ahead";
  share.expect(1);
  EXPECT_EQ(share.room(), Share::kFewest * kStripe);
}

TEST_F(ShareTest, AnotherPathBeginsAnew) {
  carry(50'000, milliseconds(100));
  share.reset();
  EXPECT_EQ(share.room(), 2 * Share::kFewest * kStripe);
}

}  // namespace
}  // namespace fairlead::datapath
