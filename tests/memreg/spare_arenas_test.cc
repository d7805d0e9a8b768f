// Memory that is kept for others shows them nothing, and is bounded.
#include "memreg/spare_arenas.h"

#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "memreg/pages.h"

namespace fairlead::memreg {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

Arena written(std::size_t bytes, unsigned char with = 0xA5) {
  Arena arena = *Arena::map(bytes);
  std::memset(arena.bytes().data(), with, arena.bytes().size());
  return arena;
}

bool is_zero(const Arena& arena) {
  const std::span<const std::byte> bytes = arena.bytes();
  return bytes.front() == std::byte{0} && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

template <typename Condition>
bool eventually(Condition condition) {
  for (int i = 0; i < 4000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return condition();
}

TEST(SpareArenas, WhatIsTakenIsTheSameMemoryAndZero) {
  SpareArenas spare({.most = 64 * kMiB});
  for (const bool waits : {false, true}) {  // until it was cleared
    Arena arena = written(8 * kMiB);
    const std::byte* const at = arena.bytes().data();
    spare.give(std::move(arena));
    EXPECT_EQ(spare.stats().bytes, 8 * kMiB);
    if (waits) {
      EXPECT_TRUE(eventually([&] { return spare.stats().cleared_bytes == 8 * kMiB; }));
    }
    const auto taken = spare.take(8 * kMiB);
    ASSERT_TRUE(taken);
    EXPECT_EQ(taken->bytes().data(), at);
    EXPECT_TRUE(is_zero(*taken));
    EXPECT_EQ(spare.stats().bytes, 0U);
  }
  EXPECT_EQ(spare.stats().taken_bytes, 16 * kMiB);
}

TEST(SpareArenas, TheSmallestThatIsLargeEnoughIsTakenAndItsRestGivenBack) {
  SpareArenas spare({.most = 64 * kMiB});
  spare.give(written(16 * kMiB));
  spare.give(written(8 * kMiB));
  spare.give(written(4 * kMiB));
  const auto taken = spare.take(5 * kMiB + 1);
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->bytes().size(), 5 * kMiB + page_size());
  EXPECT_TRUE(is_zero(*taken));
  EXPECT_EQ(spare.stats().bytes, 20 * kMiB);
  EXPECT_FALSE(spare.take(17 * kMiB)) << "none is so large";
  EXPECT_FALSE(spare.take(kMiB)) << "none is so small that most of it would not be lost";
  EXPECT_EQ(spare.stats().bytes, 20 * kMiB);
}

TEST(SpareArenas, TheLatestAreKeptWithinTheBound) {
  SpareArenas spare({.most = 10 * kMiB});
  spare.give(written(6 * kMiB));
  spare.give(written(4 * kMiB));
  EXPECT_EQ(spare.stats().bytes, 10 * kMiB);
  EXPECT_TRUE(eventually([&] { return spare.stats().cleared_bytes == 10 * kMiB; }));
  spare.give(written(5 * kMiB));
  EXPECT_EQ(spare.stats().bytes, 9 * kMiB) << "the first made room";
  spare.give(written(11 * kMiB));
  spare.give(written(SpareArenas::kLeast / 2));
  EXPECT_EQ(spare.stats().bytes, 9 * kMiB) << "neither is kept";
  EXPECT_TRUE(eventually([&] { return spare.stats().cleared_bytes == 9 * kMiB; }));
  spare.trim(5 * kMiB);
  EXPECT_EQ(spare.stats().bytes, 5 * kMiB);
  spare.trim(0);
  EXPECT_EQ(spare.stats().bytes, 0U);
  SpareArenas none({.most = 0});
  none.give(written(2 * kMiB));
  EXPECT_EQ(none.stats().bytes, 0U);
}

TEST(SpareArenas, WhatNobodyTakesGoesBack) {
  SpareArenas spare({.most = 64 * kMiB, .idle = std::chrono::milliseconds(20)});
  spare.give(written(8 * kMiB));
  spare.give(written(2 * kMiB));
  EXPECT_TRUE(eventually([&] { return spare.stats().bytes == 0; }));
  spare.give(written(2 * kMiB));
  EXPECT_TRUE(eventually([&] { return spare.stats().bytes == 0; })) << "also when it had nothing to wait for";
}

TEST(SpareArenas, ThreadsThatTakeAndGiveAtOnceSeeNothingOfEachOther) {
  SpareArenas spare({.most = 12 * kMiB});
  std::vector<std::jthread> threads;
  for (unsigned char i = 1; i <= 4; ++i) {
    threads.emplace_back([&spare, i] {
      for (std::size_t round = 0; round < 30; ++round) {
        const std::size_t size = (1 + (round + i) % 4) * kMiB;
        const auto taken = spare.take(size);
        EXPECT_TRUE(!taken || is_zero(*taken));
        spare.give(written(size, i));
        if (round % 8 == 0) spare.trim(4 * kMiB);
      }
    });
  }
  threads.clear();
  EXPECT_LE(spare.stats().bytes, 12 * kMiB);
  EXPECT_GT(spare.stats().taken_bytes, 0U);
}

}  // namespace
}  // namespace fairlead::memreg
