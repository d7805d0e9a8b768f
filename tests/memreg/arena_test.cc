#include "memreg/arena.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/system/numa.h"

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

std::byte* map_again(const Arena& arena, int protection) {
  void* const there = ::mmap(nullptr, arena.bytes().size(), protection, MAP_SHARED, arena.fd(), 0);
  return there == MAP_FAILED ? nullptr : static_cast<std::byte*>(there);
}

TEST(Arena, FromTwoMebibytesOnBeginsAtAMultipleOfThat) {
  std::vector<Arena> arenas;
  for (int i = 0; i < 5; ++i) {
    arenas.push_back(*Arena::map((std::size_t{2} << 20) + page_size()));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arenas.back().bytes().data()) % (std::size_t{2} << 20), 0u);
    EXPECT_EQ(arenas.back().bytes().size(), (std::size_t{2} << 20) + page_size());
    arenas.push_back(*Arena::map(page_size()));  // so that the next is not aligned by chance
  }
}

TEST(Arena, ThatIsSharedIsTheSameMemoryWhereverItIsMapped) {
  auto arena = Arena::map(3 * page_size(), {.shared = true});
  ASSERT_TRUE(arena.has_value()) << arena.status().to_string();
  ASSERT_GE(arena->fd(), 0);
  EXPECT_EQ(::fcntl(arena->fd(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  std::byte* const there = map_again(*arena, PROT_READ | PROT_WRITE);
  ASSERT_NE(there, nullptr);
  arena->bytes()[5] = std::byte{1};
  EXPECT_EQ(there[5], std::byte{1});
  there[3 * page_size() - 1] = std::byte{2};
  EXPECT_EQ(arena->bytes().back(), std::byte{2});
  ::munmap(there, 3 * page_size());
  EXPECT_EQ(Arena::map(1)->fd(), -1);
}

// Else who has the descriptor could take memory away under who uses it, which is SIGBUS.
TEST(Arena, ThatIsSharedKeepsItsSize) {
  const auto arena = Arena::map(page_size(), {.shared = true});
  ASSERT_TRUE(arena.has_value());
  EXPECT_NE(::ftruncate(arena->fd(), 0), 0);
  EXPECT_EQ(errno, EPERM);
  EXPECT_NE(::ftruncate(arena->fd(), static_cast<off_t>(8 * page_size())), 0);
}

TEST(Arena, SaysWhichPagesItHasAndWhyNotBetterOnes) {
  const auto plain = Arena::map(page_size(), {.best = PageKind::kOrdinary});
  ASSERT_TRUE(plain.has_value());
  EXPECT_EQ(plain->pages(), PageKind::kOrdinary);
  EXPECT_EQ(plain->why(), "ordinary pages");
  const auto best = Arena::map(std::size_t{4} << 20, {.best = PageKind::kHuge1G});
  ASSERT_TRUE(best.has_value());
  if (best->pages() != PageKind::kHuge2M) {
    EXPECT_THAT(best->why(), testing::HasSubstr("2 MiB pages are"));
  }
  best->bytes().back() = std::byte{1};
}

TEST(Arena, OfANodeThatIsNotThereIsRefused) {
  const auto nowhere = Arena::map(page_size(), {.node = 4000});
  EXPECT_EQ(nowhere.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(nowhere.status().message(), testing::HasSubstr("node 4000"));
}

TEST(Arena, OfANodeHasItsPagesThere) {
  for (const int node : numa_nodes()) {
    const auto arena = Arena::map(8 * page_size(), {.best = PageKind::kOrdinary, .node = node});
    ASSERT_TRUE(arena.has_value()) << arena.status().to_string();
    if (arena->why().find("cannot bind") != std::string::npos) GTEST_SKIP() << arena->why();
    for (std::size_t i = 0; i < 8; ++i) arena->bytes()[i * page_size()] = std::byte{1};
    const auto where = pages_by_node(arena->bytes());
    if (!where) GTEST_SKIP() << where.error().message();
    EXPECT_EQ(where->absent, 0u);
    if (numa_nodes().size() == 1) {
      EXPECT_EQ(where->on(node), 8u);
    }
  }
}

TEST(Populate, FindsThePagesBeforeTheyAreTouched) {
  const auto arena = Arena::map(64 * page_size(), {.best = PageKind::kOrdinary});
  ASSERT_TRUE(arena.has_value());
  if (::madvise(arena->bytes().data(), page_size(), MADV_POPULATE_WRITE) != 0) GTEST_SKIP() << "before Linux 5.14";
  populate(arena->bytes());
  const auto where = pages_by_node(arena->bytes());
  if (!where) GTEST_SKIP() << where.error().message();
  EXPECT_EQ(where->absent, 0u);
}

}  // namespace
}  // namespace fairlead::memreg
