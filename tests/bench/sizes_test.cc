#include "bench/base/sizes.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace fairlead::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kMax = std::uint64_t{1} << 30;

TEST(ParseSize, Forms) {
  EXPECT_EQ(*parse_size("8"), 8U);
  EXPECT_EQ(*parse_size("8B"), 8U);
  EXPECT_EQ(*parse_size("4K"), 4096U);
  EXPECT_EQ(*parse_size("4k"), 4096U);
  EXPECT_EQ(*parse_size("1MiB"), 1048576U);
  EXPECT_EQ(*parse_size("2GB"), std::uint64_t{2} << 30);
  EXPECT_EQ(*parse_size("2^20"), 1048576U);
  EXPECT_EQ(*parse_size("2^0"), 1U);
}

TEST(ParseSize, RefusesWithTheLegalForms) {
  for (const char* text :
       {"", "x", "-1", "4X", "4KK", "2^", "2^63", "2^1x", "99999999999999999999", "9000000T", "1.5K"}) {
    const Result<std::uint64_t> size = parse_size(text);
    ASSERT_FALSE(size) << text;
    EXPECT_THAT(size.error().message(), HasSubstr("legal:"));
  }
}

TEST(ParseSizeList, ListsAndRanges) {
  EXPECT_THAT(*parse_size_list("8,4K,1M", kMax), ElementsAre(8U, 4096U, 1048576U));
  EXPECT_THAT(*parse_size_list("8..64", kMax), ElementsAre(8U, 16U, 32U, 64U));
  EXPECT_THAT(*parse_size_list("2^3..2^5,1M", kMax), ElementsAre(8U, 16U, 32U, 1048576U));
  EXPECT_THAT(*parse_size_list("3..7", kMax), ElementsAre(3U, 6U));
}

TEST(ParseSizeList, Refuses) {
  for (const char* text : {"", ",", "8,", "0", "64..8", "2G", "8..2G", "..8", "8.."}) {
    EXPECT_FALSE(parse_size_list(text, kMax)) << text;
  }
  std::string many = "8";
  for (int i = 0; i < 64; ++i) many += fmt::format(",{}", 9 + i);
  EXPECT_THAT(parse_size_list(many, kMax).error().message(), HasSubstr("more than 64 sizes"));
  for (const char* text : {"4K,8,4096", "8..64,16"}) {
    EXPECT_THAT(parse_size_list(text, kMax).error().message(), HasSubstr("is given twice")) << text;
  }
}

TEST(FormatSize, IsReadBack) {
  for (const std::uint64_t size : {1UL, 8UL, 1000UL, 4096UL, 1UL << 20, 3UL << 30}) {
    EXPECT_EQ(*parse_size(format_size(size)), size);
  }
  EXPECT_EQ(format_size(1 << 20), "1M");
  EXPECT_EQ(format_bytes(102.2e6), "102.2 MB");
  EXPECT_EQ(format_bytes(117), "117 B");
}

}  // namespace
}  // namespace fairlead::bench
