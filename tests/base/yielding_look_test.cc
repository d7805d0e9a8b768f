#include "base/system/yielding_look.h"

#include <gtest/gtest.h>

namespace fairlead {
namespace {

Nanos others_ran = 0;
int yields = 0;

Nanos yield() noexcept {
  ++yields;
  return others_ran;
}

TEST(YieldingLook, IsAloneWhileNobodyTakesTheCore) {
  YieldingLook look(yield);
  EXPECT_FALSE(look.is_alone()) << "nobody was asked";
  others_ran = 200;
  look.missed();
  EXPECT_TRUE(look.is_alone());
  look.missed();
  EXPECT_TRUE(look.is_alone());
  others_ran = 50 * kMicrosecond;
  look.missed();
  EXPECT_FALSE(look.is_alone());
  others_ran = 200;
  look.missed();
  EXPECT_TRUE(look.is_alone());
  EXPECT_EQ(yields, 4) << "it is given away after each look";
}

}  // namespace
}  // namespace fairlead
