#include "memreg/pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <future>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/system/numa.h"
#include "tests/other_process.h"

namespace fairlead::memreg {
namespace {

constexpr std::size_t kArena = std::size_t{1} << 20;

std::uintptr_t address(const Pool::Block& block) { return reinterpret_cast<std::uintptr_t>(block.bytes.data()); }

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
    Pool pool(kArena, [&](const Arena& arena) -> Result<std::shared_ptr<void>> {
      ++calls;
      ++alive;
      arena.bytes()[0] = std::byte{1};  // it is mapped
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
  Pool pool(kArena, [&](const Arena&) -> Result<std::shared_ptr<void>> {
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
  ASSERT_GT(class_size(pages), pages);
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
  Pool pool({.best = PageKind::kTransparent}, [&](const Arena& arena) -> Result<std::shared_ptr<void>> {
    mapped = arena.bytes().size();
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
  Pool pool(kArena, [&](const Arena&) -> Result<std::shared_ptr<void>> {
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
  Pool pool(kArena, [](const Arena&) -> Result<std::shared_ptr<void>> {
    return Status(Code::kResourceExhausted, "RLIMIT_MEMLOCK");
  });
  EXPECT_EQ(pool.allocate(0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(pool.allocate(100).status().message(), "RLIMIT_MEMLOCK");
  EXPECT_EQ(pool.allocate(std::size_t{1} << 62).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(pool.allocate(std::numeric_limits<std::size_t>::max()).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(pool.stats().arena_bytes, 0u);
}

// Half of an arena is there in pieces, the other in one; together they are the whole again.
TEST(PoolRuns, AndFreedBlocksOfEverySizeBecomeOne) {
  for (const std::size_t size : {std::size_t{64}, std::size_t{320}, std::size_t{4096}, std::size_t{20'000},
                                 std::size_t{65'536}, kArena / 4, 3 * kArena / 8}) {
    Pool pool(kArena);
    std::vector<Pool::Block> blocks;
    while (pool.stats().arenas < 2) blocks.push_back(*pool.allocate(size));
    pool.free(blocks.back());  // the one that did not fit
    blocks.pop_back();
    pool.trim();
    ASSERT_EQ(pool.stats().arenas, 1u) << size;
    std::shuffle(blocks.begin(), blocks.end(), std::mt19937(1));
    for (const auto& block : blocks) pool.free(block);
    const auto whole = pool.allocate(kArena);
    ASSERT_TRUE(whole.has_value()) << size;
    EXPECT_EQ(pool.stats().arenas, 1u) << size;
    EXPECT_EQ(std::count(whole->bytes.begin(), whole->bytes.end(), std::byte{0}), std::ssize(whole->bytes));
    pool.free(*whole);
  }
}

TEST(PoolRuns, TakeThePagesTheyNeed) {
  Pool pool(kArena);
  const std::size_t bytes = kMostClassBytes + 5 * page_size();
  const auto run = pool.allocate(bytes - 1);
  ASSERT_TRUE(run.has_value());
  EXPECT_EQ(pool.stats().used_bytes, bytes);
  EXPECT_EQ(pool.stats().blocks, 1u);
  pool.free(*run);
  EXPECT_EQ(pool.stats().used_bytes, 0u);
  EXPECT_EQ(pool.stats().blocks, 0u);
}

TEST(PoolAlignment, IsAsAskedFor) {
  Pool pool(kArena);
  std::vector<Pool::Block> blocks;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{100}, std::size_t{4097}, std::size_t{70'000},
                                  std::size_t{300'000}, kArena, 3 * kArena}) {
    for (std::size_t alignment = 1; alignment <= (std::size_t{4} << 20); alignment *= 2) {
      auto block = pool.allocate(bytes, {.alignment = alignment});
      ASSERT_TRUE(block.has_value()) << bytes << " at " << alignment << ": " << block.status().to_string();
      ASSERT_EQ(address(*block) % alignment, 0u) << bytes << " at " << alignment;
      ASSERT_EQ(block->bytes.size(), bytes);
      ASSERT_LE(block->bytes.data() + bytes, block->arena.data() + block->arena.size());
      std::memset(block->bytes.data(), static_cast<int>(blocks.size()), bytes);
      blocks.push_back(*block);
    }
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    ASSERT_EQ(blocks[i].bytes.front(), static_cast<std::byte>(i));
    ASSERT_EQ(blocks[i].bytes.back(), static_cast<std::byte>(i));
    pool.free(blocks[i]);
  }
  for (const std::size_t none : {std::size_t{3}, std::size_t{96}, std::size_t{1} << 31}) {
    const auto refused = pool.allocate(100, {.alignment = none});
    EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(refused.status().message(), testing::HasSubstr("to " + std::to_string(none)));
  }
}

TEST(PoolLimits, AreKeptAndSaid) {
  Pool pool({.arena_bytes = kArena, .max_bytes = 2 * kArena});
  const auto first = pool.allocate(kArena), second = pool.allocate(kArena);
  ASSERT_TRUE(first && second);
  const auto third = pool.allocate(100);
  ASSERT_FALSE(third.has_value());
  EXPECT_EQ(third.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(third.error().message(),
              testing::AllOf(testing::HasSubstr("of at most 2097152 bytes"), testing::HasSubstr("pool_max_bytes")));
  EXPECT_EQ(pool.allocate(3 * kArena).status().code(), Code::kResourceExhausted);
  pool.free(*first);
  // What is idle makes room for what does not fit it.
  const auto large = pool.allocate(kArena, {.shared = true});
  ASSERT_TRUE(large.has_value()) << large.status().to_string();
  EXPECT_EQ(pool.stats().arena_bytes, 2 * kArena);
  EXPECT_EQ(pool.stats().given_back, 1u);
  pool.free(*large);
  pool.free(*second);
}

// Arenas are whole pages: the smallest limit that is legal has room for one.
TEST(PoolLimits, AreRoundedUpToPagesAsArenasAre) {
  const std::size_t odd = 24 * page_size() + 1;
  Pool pool({.arena_bytes = odd, .best = PageKind::kOrdinary, .max_bytes = odd});
  const auto block = pool.allocate(25 * page_size());
  ASSERT_TRUE(block.has_value()) << block.status().to_string();
  EXPECT_EQ(pool.stats().arena_bytes, 25 * page_size());
  EXPECT_EQ(pool.allocate(1).status().code(), Code::kResourceExhausted);
  pool.free(*block);
}

TEST(PoolLimits, HoldForWhatHugePagesAdd) {
  constexpr std::size_t k2M = std::size_t{2} << 20, kHuge = 8 * k2M;
  if (page_supply().of_2m.free < 8) GTEST_SKIP() << "fewer than 8 free pages of 2M here";
  constexpr auto kIndex = static_cast<std::size_t>(PageKind::kHuge2M);
  const std::size_t bytes = kHuge - page_size();
  Pool tight({.arena_bytes = bytes, .best = PageKind::kHuge2M, .max_bytes = bytes});
  const auto plain = tight.allocate(100);
  ASSERT_TRUE(plain.has_value()) << plain.status().to_string();
  EXPECT_EQ(tight.stats().arena_bytes, bytes);
  EXPECT_EQ(tight.stats().arenas_of[kIndex], 0u);
  Pool roomy({.arena_bytes = bytes, .best = PageKind::kHuge2M, .max_bytes = kHuge});
  const auto huge = roomy.allocate(100);
  ASSERT_TRUE(huge.has_value()) << huge.status().to_string();
  EXPECT_EQ(roomy.stats().arena_bytes, kHuge);
  EXPECT_EQ(roomy.stats().arenas_of[kIndex], 1u);
  tight.free(*plain);
  roomy.free(*huge);
}

// A hook that refuses, and an arena that cannot be mapped, leave nothing counted.
TEST(PoolLimits, CountOnlyWhatIsThere) {
  bool refuse = true;
  Pool pool({.arena_bytes = kArena, .max_bytes = kArena}, [&](const Arena&) -> Result<std::shared_ptr<void>> {
    if (refuse) return Status(Code::kUnavailable, "not now");
    return std::shared_ptr<void>();
  });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pool.allocate(100).status().code(), Code::kUnavailable);
  refuse = false;
  const auto block = pool.allocate(100);
  ASSERT_TRUE(block.has_value()) << block.status().to_string();
  pool.free(*block);
}

TEST(PoolIdle, ArenasAreGivenBackAfterSomeRounds) {
  int alive = 0;
  Pool pool({.arena_bytes = kArena}, [&](const Arena&) -> Result<std::shared_ptr<void>> {
    ++alive;
    return std::shared_ptr<void>(&alive, [](void* p) { --*static_cast<int*>(p); });
  });
  const auto kept = pool.allocate(3 * kArena / 4), small = pool.allocate(100), other = pool.allocate(3 * kArena / 4);
  ASSERT_TRUE(kept && small && other);
  ASSERT_EQ(alive, 2);
  pool.free(*small);
  pool.free(*other);
  pool.age();  // all was used since the round before
  EXPECT_EQ(alive, 2);
  pool.age();
  pool.age();
  pool.age();
  EXPECT_EQ(alive, 1);
  EXPECT_EQ(pool.stats().given_back, 1u);
  EXPECT_EQ(pool.stats().given_back_bytes, kArena);
  EXPECT_EQ(pool.stats().cached_bytes, 0u);
  for (int i = 0; i < 8; ++i) pool.age();
  EXPECT_EQ(alive, 1) << "somebody has a block in it";
  pool.free(*kept);
  pool.trim();
  EXPECT_EQ(alive, 0);
  EXPECT_EQ(pool.stats().arena_bytes, 0u);
}

TEST(PoolIdle, AnArenaThatIsUsedNowAndThenStays) {
  Pool pool(kArena);
  for (int i = 0; i < 6; ++i) {
    const auto block = pool.allocate(kArena / 2);
    ASSERT_TRUE(block.has_value());
    pool.free(*block);
    pool.age();
  }
  EXPECT_EQ(pool.stats().given_back, 0u);
}

TEST(PoolIdle, AThreadOfThePoolSeesToIt) {
  std::promise<void> gone;
  Pool pool({.arena_bytes = kArena, .idle = std::chrono::milliseconds(1)},
            [&](const Arena&) -> Result<std::shared_ptr<void>> {
              return std::shared_ptr<void>(&gone, [](void* p) { static_cast<std::promise<void>*>(p)->set_value(); });
            });
  pool.free(*pool.allocate(100));
  EXPECT_EQ(gone.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
}

TEST(PoolStats, AccountForEveryByte) {
  Pool pool({.arena_bytes = kArena, .best = PageKind::kOrdinary});
  const auto block = pool.allocate(65'000);
  ASSERT_TRUE(block.has_value());
  EXPECT_EQ(pool.stats().used_bytes, 65'536u);
  EXPECT_EQ(pool.stats().cached_bytes, 0u);
  pool.free(*block);
  const Pool::Stats after = pool.stats();
  EXPECT_EQ(after.used_bytes, 0u);
  EXPECT_EQ(after.cached_bytes, 65'536u);
  EXPECT_EQ(after.arenas_of[static_cast<std::size_t>(PageKind::kOrdinary)], 1u);
  EXPECT_EQ(after.bytes_of[static_cast<std::size_t>(PageKind::kOrdinary)], kArena);
  EXPECT_EQ(after.pages, "ordinary pages");
}

TEST(PoolShared, BlocksCanBeMappedByAnotherProcess) {
  OtherProcess other;
  Pool pool(kArena);
  const auto shared = pool.allocate(10'000, {.shared = true});
  const auto own = pool.allocate(10'000);
  ASSERT_TRUE(shared && own);
  EXPECT_EQ(own->fd(), -1);
  ASSERT_GE(shared->fd(), 0);
  EXPECT_TRUE(own->bytes.data() < shared->arena.data() || own->bytes.data() >= &shared->arena.back());
  std::ranges::fill(shared->bytes.first(10'000), std::byte{7});
  EXPECT_TRUE(other.sees(shared->fd(), shared->fd_offset(), 10'000, std::byte{7}, std::byte{8}));
  EXPECT_TRUE(std::ranges::all_of(shared->bytes.first(10'000), [](std::byte each) { return each == std::byte{8}; }));
  shared->bytes[9'999] = std::byte{9};
  EXPECT_FALSE(other.sees(shared->fd(), shared->fd_offset(), 10'000, std::byte{8}, std::byte{8}));
  pool.free(*shared);
  pool.free(*own);
  EXPECT_EQ(pool.stats().blocks, 0u);
}

TEST(PoolNodes, HaveArenasOfTheirOwn) {
  Pool pool(kArena);
  const int node = numa_nodes().back();
  const auto bound = pool.allocate(10'000, {.node = node}), any = pool.allocate(10'000);
  ASSERT_TRUE(bound && any) << bound.status().to_string();
  EXPECT_NE(bound->arena.data(), any->arena.data());
  EXPECT_EQ(pool.stats().arenas, 2u);
  EXPECT_EQ(pool.stats().blocks, 2u);
  if (pool.stats().pages.find("cannot bind") == std::string::npos) {
    if (const auto where = pages_by_node(bound->bytes); where) {
      EXPECT_EQ(where->absent, 0u) << "it was to be populated";
    }
  }
  pool.free(*bound);
  pool.free(*any);
  const auto nowhere = pool.allocate(10, {.node = 4000});
  EXPECT_EQ(nowhere.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(nowhere.status().message(), testing::HasSubstr("NUMA node 4000"));
  pool.trim();
  EXPECT_EQ(pool.stats().arenas, 0u);
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
