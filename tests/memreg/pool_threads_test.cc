// The pool with several threads: what they keep, what they give back, and what goes from one to another.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <latch>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "memreg/pool.h"
#include "tests/no_threads.h"

namespace fairlead::memreg {
namespace {

constexpr std::size_t kArena = std::size_t{1} << 20;

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

// Blocks that one thread takes and another frees; the counts of neither alone are right.
TEST(PoolThreads, FreeWhatOthersTook) {
  Pool pool(kArena);
  constexpr int kBlocks = 4000;
  std::mutex mutex;
  std::vector<Pool::Block> handed;
  std::jthread taker([&] {
    for (int i = 0; i < kBlocks; ++i) {
      auto block = pool.allocate(i % 3 == 0 ? 65'536 : 200);
      ASSERT_TRUE(block.has_value());
      block->bytes.front() = block->bytes.back() = static_cast<std::byte>(i);
      const std::lock_guard lock(mutex);
      handed.push_back(*block);
    }
  });
  for (int freed = 0; freed < kBlocks;) {
    std::vector<Pool::Block> mine;
    {
      const std::lock_guard lock(mutex);
      mine.swap(handed);
    }
    if (mine.empty()) std::this_thread::yield();
    for (const Pool::Block& block : mine) {
      ASSERT_EQ(block.bytes.front(), static_cast<std::byte>(freed));
      ASSERT_EQ(block.bytes.back(), static_cast<std::byte>(freed));
      pool.free(block);
      ++freed;
    }
  }
  taker.join();
  EXPECT_EQ(pool.stats().blocks, 0u);
  EXPECT_EQ(pool.stats().used_bytes, 0u);
  pool.trim();
  EXPECT_EQ(pool.stats().arenas, 0u);
}

TEST(PoolThreads, GiveBackWhatTheyKeptWhenTheyEnd) {
  Pool pool(kArena);
  const std::byte* kept = nullptr;
  std::jthread([&] {
    const auto block = pool.allocate(65'536);
    ASSERT_TRUE(block.has_value());
    kept = block->bytes.data();
    pool.free(*block);
  }).join();
  EXPECT_EQ(pool.stats().cached_bytes, 65'536u);
  const auto again = pool.allocate(65'536);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->bytes.data(), kept);
  EXPECT_EQ(pool.stats().blocks, 1u);
  pool.free(*again);
}

// Many threads one after the other: nothing piles up.
TEST(PoolThreads, ThatEndedLeaveNothing) {
  Pool pool(kArena);
  for (int i = 0; i < 200; ++i) {
    std::jthread([&] {
      std::vector<Pool::Block> blocks;
      for (int j = 0; j < 6; ++j) blocks.push_back(*pool.allocate(65'536));
      for (const auto& block : blocks) pool.free(block);
    }).join();
  }
  EXPECT_EQ(pool.stats().arenas, 1u);
  EXPECT_EQ(pool.stats().cached_bytes, std::size_t{6} * 65'536);
  EXPECT_LE(pool.stats().caches, 2u);
}

// What another thread keeps is no reason for a new arena.
TEST(PoolThreads, LendOthersWhatTheyKeep) {
  Pool pool(kArena);
  std::latch freed(1), done(1);
  std::jthread other([&] {
    std::vector<Pool::Block> blocks;
    for (int i = 0; i < 4; ++i) blocks.push_back(*pool.allocate(kArena / 4));
    for (const auto& block : blocks) pool.free(block);
    freed.count_down();
    done.wait();
  });
  freed.wait();
  const auto whole = pool.allocate(kArena);
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(pool.stats().arenas, 1u);
  pool.free(*whole);
  done.count_down();
}

// Who comes while another makes the only arena that there may be has some of it.
TEST(PoolThreads, ShareTheOnlyArenaThatThereMayBe) {
  constexpr std::size_t kOnly = std::size_t{64} << 10;
  std::latch begun(1);
  Pool pool({.arena_bytes = kOnly, .max_bytes = kOnly}, [&](const Arena&) -> Result<std::shared_ptr<void>> {
    begun.count_down();
    // Time for one that does not wait to be refused; one that does is right however long this takes.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return std::shared_ptr<void>();
  });
  const auto take_one = [&pool] {
    const auto block = pool.allocate(64);
    ASSERT_TRUE(block.has_value()) << block.status().to_string();
    pool.free(*block);
  };
  std::jthread first(take_one), second([&] {
    begun.wait();
    take_one();
  });
}

TEST(PoolThreads, WaitForAnArenaThatIsBeingGivenBack) {
  std::latch begun(1);
  std::atomic<int> given_back{0};
  Pool pool({.arena_bytes = kArena, .max_bytes = kArena}, [&](const Arena&) -> Result<std::shared_ptr<void>> {
    return std::shared_ptr<void>(&begun, [&given_back](void* latch) {
      if (given_back.fetch_add(1) > 0) return;
      static_cast<std::latch*>(latch)->count_down();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // for one that does not wait, as above
    });
  });
  pool.free(*pool.allocate(64));
  const std::jthread trims([&pool] { pool.trim(); });
  begun.wait();
  const auto block = pool.allocate(64);
  ASSERT_TRUE(block.has_value()) << block.status().to_string();
  pool.free(*block);
}

// Of a pool of 64 pages four threads have at most 8 each: between any three of these blocks there is room for the
// fourth, wherever the rest is kept, on its way, or being given back.
TEST(PoolThreads, FindWhatOthersHaveInTheirHands) {
  const std::size_t most = 64 * page_size();
  Pool pool({.arena_bytes = most, .max_bytes = most});
  std::atomic<int> refused{0};
  {
    std::jthread trims([&pool](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        pool.trim();
        std::this_thread::yield();
      }
    });
    std::vector<std::jthread> workers;
    for (unsigned seed = 1; seed <= 4; ++seed) {
      workers.emplace_back([&pool, &refused, seed] {
        std::mt19937 random(seed);
        for (int i = 0; i < 10'000; ++i) {
          const auto block = pool.allocate((1 + random() % 8) * page_size());
          if (block) pool.free(*block);
          refused += block ? 0 : 1;
        }
      });
    }
    workers.clear();
  }
  EXPECT_EQ(refused.load(), 0);
  EXPECT_EQ(pool.stats().blocks, 0u);
}

TEST(PoolThreads, OutliveThePool) {
  std::latch used(1), gone(1);
  auto pool = std::make_unique<Pool>(kArena);
  std::jthread other([&] {
    pool->free(*pool->allocate(65'536));
    used.count_down();
    gone.wait();
    // The next pool is another one, even where it has the address of the first.
    Pool next(kArena);
    const auto block = next.allocate(65'536);
    ASSERT_TRUE(block.has_value());
    std::memset(block->bytes.data(), 1, block->bytes.size());
    next.free(*block);
    EXPECT_EQ(next.stats().arenas, 1u);
  });
  used.wait();
  pool.reset();
  gone.count_down();
}

// Threads that end while their pool goes.
TEST(PoolThreads, EndBesideThePool) {
  for (int i = 0; i < 50; ++i) {
    auto pool = std::make_unique<Pool>(kArena);
    std::latch used(3);
    std::vector<std::jthread> others;
    for (int j = 0; j < 3; ++j) {
      others.emplace_back([&used, pool = pool.get()] {
        pool->free(*pool->allocate(1000));
        used.count_down();
      });
    }
    used.wait();
    pool.reset();
  }
}

// A block that an object of the thread frees when the thread's other objects have gone already.
// The pool's own thread gives back what is idle; without it nothing is, and all else goes on.
TEST(PoolThreads, NoneIsToBeHad) {
  Pool pool({.arena_bytes = kArena, .idle = std::chrono::hours(1)});
  {
    const test::NoThreads none;
    const auto block = pool.allocate(4096);
    ASSERT_TRUE(block.has_value()) << block.status().to_string();
    pool.free(*block);
    const auto arena = pool.allocate(3 * kArena);
    ASSERT_TRUE(arena.has_value()) << arena.status().to_string();
    EXPECT_EQ(pool.stats().used_bytes, 3 * kArena);
    pool.free(*arena);
  }
  const auto block = pool.allocate(2 * kArena);
  ASSERT_TRUE(block.has_value());
  pool.free(*block);
  EXPECT_EQ(pool.stats().used_bytes, 0u);
}

TEST(PoolThreads, FreeAtTheirVeryEnd) {
  struct Last {
    Pool* pool = nullptr;
    Pool::Block block;
    ~Last() {
      if (pool == nullptr) return;
      pool->free(block);
      const auto again = pool->allocate(100);
      if (again) pool->free(*again);
    }
  };
  Pool pool(kArena);
  std::jthread([&] {
    thread_local Last last;  // made before the thread has a cache, so it goes after that
    last.pool = &pool;
    last.block = *pool.allocate(100);
  }).join();
  std::jthread([&] { pool.free(*pool.allocate(100)); }).join();  // the first one's cache is forgotten
  EXPECT_EQ(pool.stats().blocks, 0u);
  EXPECT_EQ(pool.stats().used_bytes, 0u);
  pool.trim();
  EXPECT_EQ(pool.stats().arenas, 0u);
}

// Takes, frees, rounds, trims and counts at once; what is written stays.
TEST(PoolThreads, WorkWhileMemoryIsGivenBack) {
  Pool pool(kArena);
  std::atomic<bool> going{true};
  std::jthread keeper([&] {
    for (unsigned i = 0; going.load(); ++i) {
      if (i % 2 == 0) pool.age();
      if (i % 2 == 1) pool.trim();
      const Pool::Stats stats = pool.stats();
      ASSERT_LE(stats.arenas, 400u);
    }
  });
  {
    std::vector<std::jthread> workers;
    for (unsigned seed = 1; seed <= 2; ++seed) {
      workers.emplace_back([&pool, seed] {
        constexpr std::array kSizes{std::size_t{64}, std::size_t{500}, std::size_t{65'536}, kArena / 2, kArena + 1};
        std::mt19937 random(seed);
        std::vector<std::pair<Pool::Block, std::byte>> held;
        for (int i = 0; i < 1500; ++i) {
          if (held.size() < 8) {
            auto block = pool.allocate(kSizes.at(random() % kSizes.size()));
            ASSERT_TRUE(block.has_value());
            const auto value = static_cast<std::byte>(random());
            block->bytes.front() = block->bytes.back() = value;
            held.emplace_back(*block, value);
          }
          const std::size_t at = random() % held.size();
          ASSERT_EQ(held[at].first.bytes.front(), held[at].second);
          ASSERT_EQ(held[at].first.bytes.back(), held[at].second);
          if (random() % 2 == 0) continue;
          pool.free(held[at].first);
          held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
        }
        for (const auto& [block, value] : held) pool.free(block);
      });
    }
  }
  going = false;
  keeper.join();
  EXPECT_EQ(pool.stats().blocks, 0u);
  pool.trim();
  EXPECT_EQ(pool.stats().arena_bytes, 0u);
}

}  // namespace
}  // namespace fairlead::memreg
