#include "datapath/engine/line_limit.h"

#include <gtest/gtest.h>

namespace fairlead::datapath {
namespace {

TEST(LineLimit, SaysOneInAnIntervalAndHowManyItKeptBack) {
  LineLimit limit(std::chrono::seconds(1));
  const LineLimit::Clock::time_point begin{};
  EXPECT_EQ(limit.take(begin), 0U);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(limit.take(begin + std::chrono::milliseconds(999)), std::nullopt);
  EXPECT_EQ(limit.take(begin + std::chrono::seconds(1)), 5U);
  EXPECT_EQ(limit.take(begin + std::chrono::seconds(1)), std::nullopt);
  EXPECT_EQ(limit.take(begin + std::chrono::hours(1)), 1U);
  EXPECT_EQ(limit.take(begin + std::chrono::hours(2)), 0U);
}

}  // namespace
}  // namespace fairlead::datapath
