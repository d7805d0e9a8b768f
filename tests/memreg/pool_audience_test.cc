// What one audience left in memory reaches no other.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "memreg/audience.h"
#include "memreg/pool.h"

namespace fairlead::memreg {
namespace {

constexpr std::size_t kArena = std::size_t{1} << 20;
constexpr std::size_t kSizes[] = {100, 3000, 5000, 65'536, kArena / 2, kArena + 1};

bool all_are(const Pool::Block& block, std::byte value) {
  return std::all_of(block.bytes.begin(), block.bytes.end(), [value](std::byte each) { return each == value; });
}
void fill(const Pool::Block& block, int value) { std::memset(block.bytes.data(), value, block.bytes.size()); }

TEST(Audiences, AreSetsOfPrincipals) {
  Audiences audiences;
  const auto number = [&](const std::vector<std::string>& principals) { return audiences.number_of(principals); };
  const Audience ab = number({"a", "b"});
  EXPECT_EQ(number({"b", "a", "b"}), ab);
  EXPECT_NE(number({"a"}), ab);
  EXPECT_NE(number({}), ab);
  EXPECT_EQ(number({}), number({}));
  for (const Audience each : {ab, number({"a"}), number({})}) {
    EXPECT_GT(each, Audience::kUnnamed);
  }
}

// What comes after the last set is cleared always.
TEST(Audiences, AreBounded) {
  Audiences audiences;
  for (std::size_t i = 0; i < Audiences::kMost; ++i) {
    ASSERT_GT(audiences.number_of(std::vector{std::to_string(i)}), Audience::kUnnamed);
  }
  EXPECT_EQ(audiences.number_of(std::vector<std::string>{"one more"}), Audience::kUnnamed);
  EXPECT_GT(audiences.number_of(std::vector<std::string>{"7"}), Audience::kUnnamed);
}

TEST(PoolAudience, StaysWithWhatItLeft) {
  Pool pool(kArena);
  const Audience a = pool.audience(std::vector<std::string>{"a"});
  for (const std::size_t size : kSizes) {
    if (size > kArena) continue;  // goes back to the system
    const auto first = pool.allocate(size, {.audience = a});
    ASSERT_TRUE(first.has_value());
    EXPECT_TRUE(all_are(*first, std::byte{0})) << size;
    fill(*first, 0xa5);
    pool.free(*first);
    const auto second = pool.allocate(size, {.audience = a});
    ASSERT_TRUE(second.has_value());
    ASSERT_EQ(second->bytes.data(), first->bytes.data());
    EXPECT_TRUE(all_are(*second, std::byte{0xa5})) << size << " bytes were cleared for those who left them";
    pool.free(*second);
  }
}

// Of the blocks that a thread keeps, whoever left them last.
TEST(PoolAudience, GetsItsOwnBlockWhereThereIsOne) {
  Pool pool(kArena);
  const Audience a = pool.audience(std::vector<std::string>{"a"}), b = pool.audience(std::vector<std::string>{"b"});
  const auto of_b = pool.allocate(65'536, {.audience = b}), of_a = pool.allocate(65'536, {.audience = a}),
             newest = pool.allocate(65'536, {.audience = b});
  ASSERT_TRUE(of_a && of_b && newest);
  fill(*of_a, 0xa5);
  for (const auto& each : {of_b, of_a, newest}) pool.free(*each);
  const auto again = pool.allocate(65'536, {.audience = a});
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->bytes.data(), of_a->bytes.data());
  EXPECT_TRUE(all_are(*again, std::byte{0xa5}));
  pool.free(*again);
}

TEST(PoolAudience, GetsNothingOfAnother) {
  const std::vector<std::string> a{"a"}, ab{"a", "b"}, everybody;
  for (const std::size_t size : kSizes) {
    Pool pool(kArena);
    const std::pair<Audience, Audience> changes[] = {
        {pool.audience(a), pool.audience(ab)},        {pool.audience(ab), pool.audience(a)},
        {pool.audience(everybody), pool.audience(a)}, {pool.audience(a), pool.audience(everybody)},
        {pool.audience(a), Audience::kUnnamed},       {Audience::kUnnamed, pool.audience(a)},
        {Audience::kUnnamed, Audience::kUnnamed},     {Audience::kNobody, pool.audience(a)}};
    for (const auto& [before, after] : changes) {
      const auto first = pool.allocate(size, {.audience = before});
      ASSERT_TRUE(first.has_value());
      fill(*first, 0xa5);
      pool.free(*first);
      const auto second = pool.allocate(size, {.audience = after});
      ASSERT_TRUE(second.has_value());
      EXPECT_TRUE(all_are(*second, std::byte{0})) << size;
      pool.free(*second);
    }
  }
}

// A short block of the new audience, then a long one: what is behind the short one is not the old audience's.
TEST(PoolAudience, GetsNothingBehindItsBytesEither) {
  Pool pool(kArena);
  const Audience a = pool.audience(std::vector<std::string>{"a"}), b = pool.audience(std::vector<std::string>{"b"});
  for (const auto& [whole, part] :
       {std::pair<std::size_t, std::size_t>{128, 65}, {65'536, 57'345}, {kArena / 2, kArena / 2 - 10}}) {
    for (const Audience between : {b, Audience::kUnnamed}) {
      const auto first = pool.allocate(whole, {.audience = a});
      ASSERT_TRUE(first.has_value());
      fill(*first, 0xa5);
      pool.free(*first);
      const auto shorter = pool.allocate(part, {.audience = between});
      ASSERT_TRUE(shorter.has_value());
      ASSERT_EQ(shorter->bytes.data(), first->bytes.data());
      pool.free(*shorter);
      const auto longer = pool.allocate(whole, {.audience = b});
      ASSERT_TRUE(longer.has_value());
      ASSERT_EQ(longer->bytes.data(), first->bytes.data());
      EXPECT_TRUE(all_are(*longer, std::byte{0})) << whole;
      pool.free(*longer);
    }
  }
}

// Through runs, where large blocks of one become small ones of another, those large ones again, and so on. Some of a
// slab is behind its last block, and belongs to nobody.
TEST(PoolAudience, GetsNothingOfAnotherInOtherSizes) {
  Pool pool({.arena_bytes = kArena, .max_bytes = kArena});
  const Audience a = pool.audience(std::vector<std::string>{"a"}), b = pool.audience(std::vector<std::string>{"b"});
  const auto count = [](const Pool::Block& block, std::byte value) {
    return std::count(block.bytes.begin(), block.bytes.end(), value);
  };
  for (const std::size_t size : {std::size_t{100}, std::size_t{3000}, std::size_t{5000}, std::size_t{65'536}}) {
    const auto whole = pool.allocate(kArena, {.audience = b});
    ASSERT_TRUE(whole.has_value()) << whole.status().to_string();
    EXPECT_EQ(count(*whole, std::byte{0xa5}), 0) << size;
    fill(*whole, 0x5a);
    pool.free(*whole);
    std::vector<Pool::Block> blocks;
    for (;;) {
      const auto block = pool.allocate(size, {.audience = a});
      if (!block) break;
      ASSERT_EQ(count(*block, std::byte{0x5a}), 0) << size;
      fill(*block, 0xa5);
      blocks.push_back(*block);
    }
    EXPECT_GT(blocks.size() * size, kArena / 2);
    for (const auto& block : blocks) pool.free(block);
    const auto half = pool.allocate(kArena / 2, {.audience = a});
    ASSERT_TRUE(half.has_value()) << half.status().to_string();
    EXPECT_EQ(count(*half, std::byte{0x5a}), 0) << size;
    pool.free(*half);
  }
}

// Four audiences in turn, any sizes, two threads: a block holds what its own audience left, or 0.
TEST(PoolAudience, SeesOnlyItsOwnWhateverHappens) {
  Pool pool({.arena_bytes = kArena});
  const auto work = [&pool](unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::pair<Pool::Block, int>> held;
    for (int i = 0; i < 1500; ++i) {
      if (held.size() < 12 && random() % 5 != 0) {
        const int who = static_cast<int>(random() % 4) + 1;  // each writes its own number everywhere; 1: unnamed
        const Audience audience = who == 1 ? Audience::kUnnamed : pool.audience(std::vector{std::to_string(who)});
        const std::size_t bytes = random() % 4 == 0 ? 1 + random() % 400'000 : 1 + random() % 9'000;
        const auto block = pool.allocate(bytes, {.audience = audience});
        ASSERT_TRUE(block.has_value());
        for (const std::byte each : block->bytes) {
          if (each != std::byte{0}) {
            ASSERT_NE(who, 1) << "cleared for who names nobody";
            ASSERT_EQ(each, static_cast<std::byte>(who));
          }
        }
        fill(*block, who);
        held.emplace_back(*block, who);
      } else if (!held.empty()) {
        const std::size_t at = random() % held.size();
        ASSERT_TRUE(all_are(held[at].first, static_cast<std::byte>(held[at].second)));
        pool.free(held[at].first);
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
      }
      if (random() % 100 == 0) pool.trim();
    }
    for (const auto& [block, who] : held) pool.free(block);
  };
  {
    std::jthread one(work, 1u), two(work, 2u);
  }
  EXPECT_EQ(pool.stats().blocks, 0u);
}

}  // namespace
}  // namespace fairlead::memreg
