#include "base/placement_wish.h"

#include <gmock/gmock.h>

namespace fairlead {
namespace {

using Kind = PlacementWish::Kind;

TEST(PlacementWish, IsOneOfFour) {
  EXPECT_EQ(parse_placement("auto")->kind, Kind::kAuto);
  EXPECT_EQ(parse_placement("off")->kind, Kind::kOff);
  const Result<PlacementWish> node = parse_placement("node=3");
  ASSERT_TRUE(node);
  EXPECT_EQ(node->kind, Kind::kNode);
  EXPECT_EQ(node->node, 3U);
  const Result<PlacementWish> cores = parse_placement("cores=8,0-2");
  ASSERT_TRUE(cores);
  EXPECT_EQ(cores->kind, Kind::kCores);
  EXPECT_THAT(cores->cpus, ::testing::ElementsAre(0, 1, 2, 8));
}

TEST(PlacementWish, NamesWhatIsLegalWhereItIsNone) {
  for (const char* const text : {"", "Auto", "on", "node", "node=", "node=-1", "node=0-1", "node=a", "cores",
                                 "cores=", "cores=1,,2", "cores=99999999999"}) {
    const Status refused = parse_placement(text).status();
    EXPECT_EQ(refused.code(), Code::kInvalidArgument) << text;
    EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr("auto, off, node=N, cores=LIST")) << text;
  }
}

}  // namespace
}  // namespace fairlead
