#include "base/system/long_look.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace fairlead {
namespace {

TEST(LongLook, SoManyDoSoAndNoMore) {
  constexpr std::size_t kMost = 3;
  std::vector<std::unique_ptr<LongLook>> looks;
  for (std::size_t i = 0; i < kMost + 2; ++i) {
    looks.push_back(std::make_unique<LongLook>(static_cast<unsigned>(kMost)));
    EXPECT_EQ(looks.back()->begin(), i < kMost) << i;
  }
  EXPECT_TRUE(looks.front()->begin()) << "it does already";
  looks.front()->end();
  looks.front()->end();
  EXPECT_TRUE(looks.back()->begin());
  EXPECT_FALSE(looks.front()->begin());
  looks.pop_back();
  EXPECT_TRUE(looks.front()->begin()) << "who goes makes room";
}

TEST(LongLook, NobodyDoesWithFewProcessors) { EXPECT_FALSE(LongLook(0).begin()); }

}  // namespace
}  // namespace fairlead
