#include "memreg/pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <future>
#include <limits>
#include <random>
#include <thread>

namespace fairlead::memreg {
namespace {

constexpr std::size_t kArena = std::size_t{1} << 20;

std::uintptr_t address(const Pool::Block& block) { return reinterpret_cast<std::uintptr_t>(block.bytes.data()); }

TEST(PoolClasses, ArePowersOfTwoAndQuarters) {
  EXPECT_EQ(Pool::class_size(1), 64u);
  EXPECT_EQ(Pool::class_size(64), 64u);
  EXPECT_EQ(Pool::class_size(65), 128u);
  EXPECT_EQ(Pool::class_size(257), 320u);
  EXPECT_EQ(Pool::class_size(1025), 1280u);
  EXPECT_EQ(Pool::class_size(4096), 4096u);
  EXPECT_EQ(Pool::class_size(4097), 8192u);
  EXPECT_EQ(Pool::class_size((1u << 20) + 1), (1u << 20) + (1u << 18));
  EXPECT_EQ(Pool::class_size(7u << 18), 7u << 18);
}

TEST(PoolClasses, NeverShrinkAndStayAligned) {
  for (std::size_t size = 1; size < 300'000; size += 7) {
    const std::size_t rounded = Pool::class_size(size);
    ASSERT_GE(rounded, size);
    ASSERT_EQ(Pool::class_size(rounded), rounded) << size;
    ASSERT_EQ(rounded % (size < page_size() ? 64 : page_size()), 0u) << size;
  }
  EXPECT_EQ(Pool::class_size(std::numeric_limits<std::size_t>::max()), std::numeric_limits<std::size_t>::max());
}

TEST(PoolBlocks, AreAlignedDisjointAndReused) {
  Pool pool(kArena);
  std::vector<Pool::Block> blocks;
  for (std::size_t size : {1u, 64u, 100u, 4096u, 3u, 5000u, 65'536u, 4095u, 64u, 1u << 19}) {
    auto block = pool.allocate(size);
    ASSERT_TRUE(block.has_value()) << block.status().to_string();
    EXPECT_EQ(block->bytes.size(), size);
    EXPECT_EQ(address(*block) % (size >= page_size() ? page_size() : 64), 0u) << size;
    EXPECT_GE(block->bytes.data(), block->arena.data());
    EXPECT_LE(block->bytes.data() + size, block->arena.data() + block->arena.size());
    std::memset(block->bytes.data(), static_cast<int>(blocks.size() + 1), size);
    blocks.push_back(*block);
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_TRUE(std::all_of(blocks[i].bytes.begin(), blocks[i].bytes.end(),
                            [i](std::byte b) { return b == static_cast<std::byte>(i + 1); }));
  }
  const std::uintptr_t before = address(blocks[3]);
  pool.free(blocks[3]);
  blocks.erase(blocks.begin() + 3);
  auto again = pool.allocate(4096);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(address(*again), before);
  pool.free(*again);
  for (const auto& block : blocks) pool.free(block);
  EXPECT_EQ(pool.stats().blocks, 0u);
  EXPECT_EQ(pool.stats().used_bytes, 0u);
}

TEST(PoolArenas, AreHookedOnceEach) {
  int alive = 0, calls = 0;
  {
    Pool pool(kArena, [&](std::span<std::byte> arena) -> Result<std::shared_ptr<void>> {
      ++calls;
      ++alive;
      arena[0] = std::byte{1};  // it is mapped
      return std::shared_ptr<void>(new int(calls), [&alive](void* p) {
        --alive;
        delete static_cast<int*>(p);
      });
    });
    std::vector<Pool::Block> blocks;
    for (int i = 0; i < 8; ++i) blocks.push_back(*pool.allocate(kArena / 4));
    EXPECT_EQ(calls, 2);
    EXPECT_EQ(*static_cast<int*>(blocks.front().owner), 1);
    EXPECT_EQ(*static_cast<int*>(blocks.back().owner), 2);
    EXPECT_EQ(pool.stats().arena_bytes, 2 * kArena);
    for (const auto& block : blocks) pool.free(block);
    EXPECT_EQ(alive, 2);
  }
  EXPECT_EQ(alive, 0);
}

TEST(PoolArenas, LargeBlocksHaveTheirOwn) {
  int alive = 0;
  Pool pool(kArena, [&](std::span<std::byte>) -> Result<std::shared_ptr<void>> {
    ++alive;
    return std::shared_ptr<void>(&alive, [](void* p) { --*static_cast<int*>(p); });
  });
  auto small = pool.allocate(10);
  auto large = pool.allocate(kArena + 1);
  ASSERT_TRUE(small && large);
  EXPECT_EQ(alive, 2);
  EXPECT_EQ(large->arena.data(), large->bytes.data());
  std::memset(large->bytes.data(), 1, large->bytes.size());
  pool.free(*large);
  EXPECT_EQ(alive, 1);
  EXPECT_EQ(pool.stats().arenas, 1u);
  pool.free(*small);
}

// Not what its class would: 1,290 MiB took 1,536.
TEST(PoolArenas, LargeBlocksTakeWhatTheyHold) {
  const std::size_t pages = 1290 * page_size();
  ASSERT_GT(Pool::class_size(pages), pages);
  Pool pool(kArena);
  const auto block = pool.allocate(pages);
  ASSERT_TRUE(block.has_value());
  EXPECT_EQ(block->bytes.size(), pages);
  EXPECT_EQ(block->arena.size(), pages);
  EXPECT_EQ(pool.stats().used_bytes, pages);
  EXPECT_EQ(pool.stats().arena_bytes, pages);
  const auto odd = pool.allocate(pages + 1);
  ASSERT_TRUE(odd.has_value());
  EXPECT_EQ(odd->arena.size(), pages + page_size());
  EXPECT_EQ(pool.stats().used_bytes, 2 * pages + page_size());
  pool.free(*block);
  pool.free(*odd);
  EXPECT_EQ(pool.stats().used_bytes, 0u);
  EXPECT_EQ(pool.stats().arena_bytes, 0u);
}

TEST(PoolArenas, OfAFullSizedModel) {
  constexpr std::size_t kBytes = std::size_t{1290} << 20;
  std::size_t mapped = 0;
  // The hook sees the arena before any page of it is touched.
  Pool pool(std::size_t{64} << 20, [&](std::span<std::byte> arena) -> Result<std::shared_ptr<void>> {
    mapped = arena.size();
    return Status(Code::kUnavailable, "only looking");
  });
  EXPECT_EQ(pool.allocate(kBytes).status().code(), Code::kUnavailable);
  EXPECT_EQ(mapped, kBytes);
}

// What one user left in a block must not reach the next, who may publish it.
TEST(PoolBlocks, AreClearedBeforeTheyAreHandedOutAgain) {
  Pool pool(kArena);
  for (const std::size_t size : {std::size_t{100}, std::size_t{5000}, kArena / 2, kArena + 1}) {
    const auto first = pool.allocate(size);
    ASSERT_TRUE(first.has_value());
    std::memset(first->bytes.data(), 0xa5, size);
    pool.free(*first);
    const auto second = pool.allocate(size + size % 2);  // of the same class
    ASSERT_TRUE(second.has_value());
    EXPECT_EQ(std::count(second->bytes.begin(), second->bytes.end(), std::byte{0}), std::ssize(second->bytes)) << size;
    pool.free(*second);
  }
}

// Registering gigabytes takes seconds: others allocate, free and ask for figures meanwhile.
TEST(PoolArenas, AreMadeWithoutTheLock) {
  Pool* others = nullptr;
  int calls = 0;
  Pool pool(kArena, [&](std::span<std::byte>) -> Result<std::shared_ptr<void>> {
    if (++calls == 1) return std::shared_ptr<void>();  // the arena of the others
    auto other = std::async(std::launch::async, [&] {
      const auto block = others->allocate(64);
      if (block) others->free(*block);
      return others->stats().arenas;
    });
    EXPECT_EQ(other.wait_for(std::chrono::seconds(20)), std::future_status::ready) << "the pool is locked";
    return std::shared_ptr<void>(std::make_shared<std::future<std::size_t>>(std::move(other)));
  });
  others = &pool;
  const auto small = pool.allocate(64);
  const auto large = pool.allocate(kArena + 1);
  const auto second_arena = pool.allocate(kArena);
  ASSERT_TRUE(small && large && second_arena);
  EXPECT_EQ(calls, 3);
  for (const auto& block : {*small, *large, *second_arena}) pool.free(block);
}

TEST(PoolErrors, ZeroHugeAndTheHooksOwn) {
  Pool pool(kArena, [](std::span<std::byte>) -> Result<std::shared_ptr<void>> {
    return Status(Code::kResourceExhausted, "RLIMIT_MEMLOCK");
  });
  EXPECT_EQ(pool.allocate(0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(pool.allocate(100).status().message(), "RLIMIT_MEMLOCK");
  EXPECT_EQ(pool.allocate(std::size_t{1} << 62).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(pool.allocate(std::numeric_limits<std::size_t>::max()).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(pool.stats().arena_bytes, 0u);
}

TEST(PoolThreads, ShareItWithoutOverlap) {
  Pool pool(kArena);
  const auto work = [&pool](unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::pair<Pool::Block, int>> held;
    for (int i = 0; i < 2000; ++i) {
      if (held.size() < 20 && random() % 3 != 0) {
        auto block = pool.allocate(1 + random() % 20'000);
        ASSERT_TRUE(block.has_value());
        const int value = static_cast<int>(random() & 0xff);
        std::memset(block->bytes.data(), value, block->bytes.size());
        held.emplace_back(*block, value);
      } else if (!held.empty()) {
        const auto [block, value] = held.back();
        held.pop_back();
        ASSERT_EQ(block.bytes.front(), static_cast<std::byte>(value));
        ASSERT_EQ(block.bytes.back(), static_cast<std::byte>(value));
        pool.free(block);
      }
    }
    for (const auto& each : held) pool.free(each.first);
  };
  {
    std::jthread a(work, 1u), b(work, 2u), c(work, 3u);
  }
  EXPECT_EQ(pool.stats().used_bytes, 0u);
}

#if defined(__SANITIZE_ADDRESS__)
TEST(PoolDeathTest, FreedBlocksArePoisoned) {
  Pool pool(kArena);
  auto block = pool.allocate(100);
  ASSERT_TRUE(block.has_value());
  pool.free(*block);
  EXPECT_DEATH(*const_cast<volatile std::byte*>(block->bytes.data()) = std::byte{1}, "use-after-poison");
}
#endif

}  // namespace
}  // namespace fairlead::memreg
