#include "base/index_list.h"

#include <gmock/gmock.h>

namespace fairlead {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(IndexList, ReadsWhatLinuxWrites) {
  EXPECT_THAT(*parse_index_list("0-3,8,10-11\n"), ElementsAre(0, 1, 2, 3, 8, 10, 11));
  EXPECT_THAT(*parse_index_list("7"), ElementsAre(7));
  EXPECT_THAT(*parse_index_list("\n"), IsEmpty());
  EXPECT_THAT(*parse_index_list("2,1,1-2"), ElementsAre(1, 2));
}

TEST(IndexList, RefusesAllElse) {
  for (const char* const text :
       {"-1", "1-", "3-1", "1,,2", "1,", ",1", "a", "1 2", "0x1", "0-4294967295", "99999999999"}) {
    EXPECT_EQ(parse_index_list(text).status().code(), Code::kInvalidArgument) << text;
  }
}

TEST(IndexList, WritesRanges) {
  EXPECT_EQ(to_index_list(std::vector<unsigned>{}), "none");
  EXPECT_EQ(to_index_list(std::vector<unsigned>{5}), "5");
  EXPECT_EQ(to_index_list(std::vector<unsigned>{9, 1, 0, 2, 8, 8}), "0-2,8-9");
}

}  // namespace
}  // namespace fairlead
