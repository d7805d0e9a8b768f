#include "base/recent_time.h"

#include <gtest/gtest.h>

#include <chrono>

namespace fairlead {
namespace {

TEST(RecentTime, IsAReadingOfTheClockAndNeverGoesBack) {
  RecentTime<int> time;
  int readings = 0;
  const auto read = [&readings] { return ++readings; };
  int last = time.now(read);
  EXPECT_EQ(last, 1) << "the first is read";
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
  while (std::chrono::steady_clock::now() < end) {
    const int now = time.now(read);
    ASSERT_TRUE(now == last || now == last + 1);
    ASSERT_EQ(now, readings);
    last = now;
  }
  EXPECT_GT(readings, 1) << "it grows old";
}

}  // namespace
}  // namespace fairlead
