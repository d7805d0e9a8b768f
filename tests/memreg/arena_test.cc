#include "memreg/arena.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/system/numa.h"
#include "tests/refused_call.h"

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

/// In a child: nodes are no longer this process's, as a cpuset that shrinks takes them. 0: as it should be.
int without_nodes() {
  constexpr int kSkipped = 77;
  if (!test::refuse_call(SYS_mbind, EINVAL)) return kSkipped;
  const int node = numa_nodes().front();
  if (Arena::map(page_size(), {.node = node}).status().code() != Code::kInvalidArgument) return 1;
  const auto wished = Arena::map(page_size(), {.node = node, .node_is_wish = true});
  if (!wished) return 2;
  if (wished->why().find("cannot bind") == std::string::npos) return 3;
  return Arena::map(page_size(), {.node = 4000, .node_is_wish = true}) ? 4 : 0;
}

TEST(Arena, OfANodeThatMayNotBeUsedAnyMoreIsElsewhereWhereItWasAWish) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(without_nodes());
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no seccomp filters here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
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

/// What the kernel says of the mapping that begins there: "KernelPageSize" in kB, by /proc/self/smaps; 0: nothing.
std::size_t kernel_page_kilobytes(const std::byte* begin) {
  const std::string wanted = fmt::format("{:x}-", reinterpret_cast<std::uintptr_t>(begin));
  std::ifstream smaps("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(smaps, line);) {
    constexpr std::string_view kField = "KernelPageSize:";
    here = line.starts_with(wanted) || (here && line.find('-') == std::string::npos);
    if (here && line.starts_with(kField)) return std::stoul(line.substr(kField.size()));
  }
  return 0;
}

/// Pages of it by node, by /proc/self/numa_maps; empty: the kernel has none.
std::map<int, std::size_t> huge_pages_by_node(const std::byte* begin) {
  const std::string wanted = fmt::format("{:x} ", reinterpret_cast<std::uintptr_t>(begin));
  std::ifstream maps("/proc/self/numa_maps");
  std::map<int, std::size_t> pages;
  for (std::string line; std::getline(maps, line);) {
    if (!line.starts_with(wanted)) continue;
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      int node = 0;
      std::size_t count = 0;
      if (std::sscanf(word.c_str(), "N%d=%zu", &node, &count) == 2) pages[node] += count;
    }
  }
  return pages;
}

// Where huge pages are set aside on the machine. FAIRLEAD_HUGE_PAGES="2M 1G" says that there are such, on every node
// (2M) or on one (1G): tests/interop/placement_test.py sets some aside in a guest.
class ArenaOfHugePages : public testing::TestWithParam<PageKind> {
 protected:
  static std::size_t free_on(int node) {
    const PageSupply supply = page_supply(node);
    return GetParam() == PageKind::kHuge1G ? supply.of_1g.free : supply.of_2m.free;
  }
  static bool must_be() {
    const char* const promised = std::getenv("FAIRLEAD_HUGE_PAGES");
    return promised != nullptr && std::string_view(promised).find(to_string(GetParam())) != std::string_view::npos;
  }
};

TEST_P(ArenaOfHugePages, HasThemOnTheNodeThatWasAskedForAndGivesThemBack) {
  const std::size_t page = page_bytes(GetParam());
  std::size_t nodes = 0;
  for (const int node : numa_nodes()) {
    const std::size_t free = free_on(node);
    if (free == 0) continue;
    ++nodes;
    for (const bool shared : {false, true}) {
      SCOPED_TRACE(fmt::format("node {}, shared: {}", node, shared));
      const auto arena = Arena::map(page, {.best = GetParam(), .node = node, .shared = shared});
      ASSERT_TRUE(arena.has_value()) << arena.status().to_string();
      EXPECT_EQ(arena->pages(), GetParam()) << arena->why();
      EXPECT_EQ(kernel_page_kilobytes(arena->bytes().data()) * 1024, page);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena->bytes().data()) % page, 0U);
      EXPECT_EQ(arena->fd() >= 0, shared);
      EXPECT_EQ(free_on(node), free - 1) << "it is there before it is touched";
      const std::map<int, std::size_t> where = huge_pages_by_node(arena->bytes().data());
      if (!where.empty()) {
        EXPECT_EQ(where, (std::map<int, std::size_t>{{node, 1}}));
      }
      arena->bytes().front() = arena->bytes().back() = std::byte{1};
    }
    EXPECT_EQ(free_on(node), free) << "given back";
  }
  if (nodes == 0 && !must_be()) GTEST_SKIP() << "no free pages of " << to_string(GetParam()) << " here";
  EXPECT_GE(nodes, GetParam() == PageKind::kHuge2M && must_be() ? numa_nodes().size() : 1);
}

INSTANTIATE_TEST_SUITE_P(Of, ArenaOfHugePages, testing::Values(PageKind::kHuge2M, PageKind::kHuge1G),
                         [](const auto& kind) { return "Of" + std::string(to_string(kind.param)); });

/// In a child: madvise() as kernels before 5.14 have it. 0: as it should be.
int without_populate() {
  constexpr int kSkipped = 77;
  const std::size_t page = page_size();
  void* const fresh = ::mmap(nullptr, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  // Behind the end of its file there is no page to be had, as with huge ones that another has taken.
  const int file = ::memfd_create("short", 0);
  void* const lacking = ::mmap(nullptr, 4 * page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (fresh == MAP_FAILED || lacking == MAP_FAILED || ::ftruncate(file, static_cast<off_t>(3 * page)) != 0) return 1;
  if (!test::refuse_call(SYS_madvise, EINVAL)) return kSkipped;
  if (make_present({static_cast<std::byte*>(fresh), 4 * page}, page) != 0) return 2;
  std::vector<unsigned char> there(4);
  if (::mincore(fresh, 4 * page, there.data()) != 0) return 3;
  for (const unsigned char each : there) {
    if ((each & 1) == 0) return 4;
  }
  return make_present({static_cast<std::byte*>(lacking), 4 * page}, page) == ENOMEM ? 0 : 5;
}

TEST(MakePresent, TouchesPagesWhereTheKernelDoesNotPopulate) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(without_populate());
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "it ended by a fault";
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no seccomp filters here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
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
