// What lies at an address changes; what the cache finds there is never what lay there before.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <span>
#include <vector>

#include "cached_memory.h"

namespace fairlead::memreg::cache {
namespace {

using CacheStaleness = RegistrationCacheTest;

TEST_F(CacheStaleness, TheDoubleKeepsThePagesItWasGiven) {
  make();
  Pages memory(20);
  memory.fill('a');
  const Lease lease = found(memory.all());
  EXPECT_EQ(sent(lease, memory.all()), "a");
  memory.fill('b');  // the same pages
  EXPECT_EQ(sent(lease, memory.all()), "b");
  const std::span<std::byte> where = memory.all();
  memory.unmap();
  const Pages next = mapped_again(where, 'c');
  EXPECT_EQ(sent(lease, where), "b") << "a device knows nothing of what is mapped there now";
}

TEST_F(CacheStaleness, MemoryIsFoundAgain) {
  make();
  Pages memory(4);
  memory.fill('a');
  EXPECT_EQ(sent(memory.all()), "a");
  EXPECT_EQ(sent(memory.pages(1, 2)), "a");
  EXPECT_EQ(sent(memory.all().subspan(100, 1)), "a");
  EXPECT_EQ(verbs().registrations(), 1U);
  EXPECT_EQ(cache().stats().hits, 2U);
}

TEST_F(CacheStaleness, UnmappedAndMappedAgain) {
  make();
  std::byte* where = nullptr;
  for (const char letter : {'a', 'b', 'c', 'd'}) {
    Pages memory(4, where, where != nullptr ? MAP_FIXED_NOREPLACE : 0);
    if (where != nullptr) {
      ASSERT_EQ(memory.data(), where);
    }
    where = memory.data();
    memory.fill(letter);
    EXPECT_EQ(sent(memory.all()), std::string(1, letter));
  }
  EXPECT_EQ(verbs().registrations(), 4U);
  expect_nothing_pinned();
}

TEST_F(CacheStaleness, APartIsUnmapped) {
  make();
  Pages memory(8);
  memory.fill('a');
  EXPECT_EQ(sent(memory.all()), "a");
  ASSERT_EQ(::munmap(memory.page(3), page_bytes()), 0);
  EXPECT_EQ(cache().find(memory.all()).status().code(), Code::kInvalidArgument);
  const Pages hole = mapped_again({memory.page(3), 1 * page_bytes()}, 'b');
  EXPECT_EQ(sent(memory.all()), "aba");
}

TEST_F(CacheStaleness, MappedOver) {
  make();
  Pages memory(8);
  memory.fill('a');
  EXPECT_EQ(sent(memory.all()), "a");
  ASSERT_EQ(
      ::mmap(memory.page(2), 2 * page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
      memory.page(2));
  std::memset(memory.page(2), 'b', 2 * page_bytes());
  EXPECT_EQ(sent(memory.all()), "aba");
}

TEST_F(CacheStaleness, Emptied) {
  make();
  Pages memory(8);
  memory.fill('a');
  EXPECT_EQ(sent(memory.all()), "a");
  ASSERT_EQ(::madvise(memory.page(4), page_bytes(), MADV_DONTNEED), 0);
  std::memset(memory.page(4), 'b', page_bytes());
  EXPECT_EQ(sent(memory.all()), "aba");
}

TEST_F(CacheStaleness, Moved) {
  make();
  Pages memory(4);
  memory.fill('a');
  EXPECT_EQ(sent(memory.all()), "a");
  Pages elsewhere(4);
  ASSERT_EQ(::mremap(memory.data(), memory.all().size(), memory.all().size(), MREMAP_MAYMOVE | MREMAP_FIXED,
                     elsewhere.data()),
            elsewhere.data());
  EXPECT_EQ(sent(elsewhere.all()), "a");
  const Pages next = mapped_again({memory.data(), 4 * page_bytes()}, 'b');
  EXPECT_EQ(sent(memory.all()), "b");
  EXPECT_EQ(verbs().registrations(), 3U);
  // What was moved is watched where it is now.
  elsewhere.unmap();
  const Pages last(4, next.data(), MAP_FIXED);
  last.fill('c');
  EXPECT_EQ(sent(last.all()), "c");
}

bool is_watched(std::span<const std::byte> bytes) {
  const std::vector<Range> tracked = tracked_mappings();
  return std::any_of(tracked.begin(), tracked.end(), [bytes](Range each) { return each.overlaps(range_of(bytes)); });
}

// The kernel goes on watching what it moves, and what is new behind it.
TEST_F(CacheStaleness, WhatWasMovedIsNotWatchedForEver) {
  make();
  Pages memory(4), elsewhere(8);
  memory.fill('a');
  EXPECT_EQ(sent(memory.all()), "a");
  EXPECT_TRUE(is_watched(memory.all()));
  ASSERT_EQ(::mremap(memory.data(), memory.all().size(), elsewhere.all().size(), MREMAP_MAYMOVE | MREMAP_FIXED,
                     elsewhere.data()),
            elsewhere.data());
  EXPECT_EQ(sent(elsewhere.pages(0, 2)), "a");  // what is found there meanwhile stays
  cache().trim();
  EXPECT_FALSE(is_watched(elsewhere.all()));
  EXPECT_EQ(sent(elsewhere.pages(1, 2)), "a");
  EXPECT_TRUE(is_watched(elsewhere.pages(1, 2)));
  EXPECT_FALSE(is_watched(elsewhere.pages(3, 5)));
}

TEST_F(CacheStaleness, ReallocThatMoves) {
  make();
  constexpr std::size_t kBytes = std::size_t{256} << 10;
  ::mallopt(M_MMAP_THRESHOLD, kBytes / 2);  // else it learns to keep them
  void* const above = std::malloc(kBytes);  // mappings go downwards, so that the next cannot grow where it is
  auto* const memory = static_cast<std::byte*>(std::malloc(kBytes));
  ASSERT_TRUE(above != nullptr && memory != nullptr);
  std::memset(memory, 'a', kBytes);
  EXPECT_EQ(sent({memory, kBytes}), "a");
  auto* const grown = static_cast<std::byte*>(std::realloc(memory, 16 * kBytes));
  ASSERT_NE(grown, nullptr);
  EXPECT_EQ(sent({grown, kBytes}), "a");
  cache().trim();
  EXPECT_FALSE(is_watched({grown, 16 * kBytes}));
  std::free(grown);
  std::free(above);
  expect_nothing_pinned();
}

TEST_F(CacheStaleness, MovedAwayWhileTheMappingStays) {
  make();
  Pages memory(4);
  memory.fill('a');
  EXPECT_EQ(sent(memory.all()), "a");
  const Pages elsewhere(4);
  if (::mremap(memory.data(), memory.all().size(), memory.all().size(),
               MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, elsewhere.data()) == MAP_FAILED) {
    GTEST_SKIP() << "no MREMAP_DONTUNMAP here";
  }
  memory.fill('b');
  EXPECT_EQ(sent(memory.all()), "b");
  EXPECT_EQ(sent(elsewhere.all()), "a");
}

TEST_F(CacheStaleness, ShrunkAndGrown) {
  make();
  Pages memory(8);
  memory.fill('a');
  EXPECT_EQ(sent(memory.all()), "a");
  ASSERT_EQ(::mremap(memory.data(), memory.all().size(), 4 * page_bytes(), 0), memory.data());
  const Pages tail = mapped_again({memory.page(4), 4 * page_bytes()}, 'b');
  EXPECT_EQ(sent(memory.all()), "ab");
}

TEST_F(CacheStaleness, WhatIsHeldKeepsItsPagesAndIsNotFound) {
  make();
  Pages memory(4);
  memory.fill('a');
  const std::span<std::byte> where = memory.all();
  {
    const Lease held = found(where);
    memory.unmap();
    const Pages next = mapped_again(where, 'b');
    EXPECT_EQ(sent(where), "b");
    EXPECT_EQ(sent(held, where), "a");
    EXPECT_EQ(cache().stats().pinned_bytes, 2 * where.size());
  }
  expect_nothing_pinned();
}

TEST_F(CacheStaleness, MallocThatGivesItsMemoryBack) {
  make();
  constexpr std::size_t kBytes = std::size_t{256} << 10;
  ::mallopt(M_MMAP_THRESHOLD, kBytes / 2);  // else it learns to keep them
  for (int round = 0; round < 32; ++round) {
    auto* const memory = static_cast<std::byte*>(std::malloc(kBytes));
    ASSERT_NE(memory, nullptr);
    const char letter = static_cast<char>('a' + round % 26);
    std::memset(memory, letter, kBytes);
    EXPECT_EQ(sent({memory, kBytes}), std::string(1, letter));
    std::free(memory);
  }
  expect_nothing_pinned();
}

TEST_F(CacheStaleness, AChildMayUnmapAndEnd) {
  make();
  Pages memory(4);
  memory.fill('a');
  EXPECT_EQ(sent(memory.all()), "a");
  EXPECT_EQ(in_child([&] {
              // Nobody reads events here, and none may come; what is found must not be the parent's.
              const bool inert = cache().find(memory.all()).status().code() == Code::kUnavailable &&
                                 cache().declare(memory.all()).code() == Code::kUnavailable;
              cache().trim();
              cache().close();
              memory.unmap();
              return inert ? 0 : 1;
            }),
            0);
  EXPECT_EQ(found(memory.all()).pieces().size(), 1U);
  EXPECT_EQ(verbs().registrations(), 1U) << "the parent's own is as it was";
  const std::span<std::byte> where = memory.all();
  memory.unmap();
  const Pages next = mapped_again(where, 'b');
  EXPECT_EQ(sent(where), "b");
}

// A fork shares all pages until somebody writes, but for those that are pinned: of these the child has copies, so that
// what the parent writes is written where the device reads.
TEST_F(CacheStaleness, WhatIsWrittenAfterAForkIsSent) {
  make();
  if (!verbs().pins()) GTEST_SKIP() << "no program may pin pages here (io_uring_register)";
  Pages memory(4);
  memory.fill('a');
  EXPECT_EQ(sent(memory.all()), "a");
  int go[2];
  ASSERT_EQ(::pipe(go), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    char word = 0;
    const bool told = ::read(go[0], &word, 1) == 1;
    const auto all = memory.all();
    ::_exit(told && std::all_of(all.begin(), all.end(), [](std::byte each) { return each == std::byte{'a'}; }) ? 0 : 1);
  }
  memory.fill('b');  // while the child has them, too
  EXPECT_EQ(sent(memory.all()), "b");
  EXPECT_EQ(verbs().registrations(), 1U) << "found, not made again";
  ASSERT_EQ(::write(go[1], "g", 1), 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the child has what was there when it was made";
  memory.fill('c');
  EXPECT_EQ(sent(memory.all()), "c");
  ::close(go[0]);
  ::close(go[1]);
}

TEST_F(CacheStaleness, AChildMakesItsOwn) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "under ThreadSanitizer the child of a process with threads cannot start its own";
#endif
  make();
  Pages memory(4);
  memory.fill('a');
  EXPECT_EQ(sent(memory.all()), "a");
  EXPECT_EQ(in_child([&] {
              PageKeepingVerbs verbs;
              RegistrationCache own({}, verbs::testing::hook_of(verbs));
              if (!own.find(memory.all())) return 1;
              const std::span<std::byte> where = memory.all();
              memory.unmap();
              if (own.find(where).status().code() != Code::kInvalidArgument) return 2;
              return own.stats().invalidated == 1 ? 0 : 3;
            }),
            0);
}

}  // namespace
}  // namespace fairlead::memreg::cache
