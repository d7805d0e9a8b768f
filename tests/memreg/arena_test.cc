#include "memreg/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace fairlead::memreg {
namespace {

TEST(Arena, IsPageAlignedZeroedAndWritable) {
  auto arena = Arena::map(page_size() + 1);
  ASSERT_TRUE(arena.has_value());
  const auto bytes = arena->bytes();
  EXPECT_EQ(bytes.size(), 2 * page_size());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes.data()) % page_size(), 0u);
  EXPECT_EQ(bytes.back(), std::byte{0});
  bytes.back() = std::byte{1};
}

TEST(Arena, MovesItsBytes) {
  auto arena = Arena::map(1);
  ASSERT_TRUE(arena.has_value());
  Arena moved = std::move(*arena);
  EXPECT_TRUE(arena->bytes().empty());
  EXPECT_EQ(moved.bytes().size(), page_size());
  Arena target;
  target = std::move(moved);
  target.bytes()[0] = std::byte{7};
}

TEST(Arena, SaysWhatItCouldNotMap) {
  EXPECT_EQ(Arena::map(0).status().code(), Code::kInvalidArgument);
  const auto huge = Arena::map(std::size_t{1} << 62);
  ASSERT_FALSE(huge.has_value());
  EXPECT_EQ(huge.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(huge.error().message(), testing::HasSubstr("4611686018427387904 bytes"));
  EXPECT_EQ(Arena::map(std::numeric_limits<std::size_t>::max()).status().code(), Code::kResourceExhausted);
}

}  // namespace
}  // namespace fairlead::memreg
