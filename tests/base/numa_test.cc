#include "base/system/numa.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace fairlead {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Pages {
 public:
  explicit Pages(std::size_t count)
      : size_(count * page()),
        start_(static_cast<std::byte*>(
            ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    ::madvise(start_, size_, MADV_NOHUGEPAGE);  // a page that is touched must not bring its neighbours
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { ::munmap(start_, size_); }
  static std::size_t page() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }
  [[nodiscard]] std::span<std::byte> bytes() const { return {start_, size_}; }

 private:
  std::size_t size_;
  std::byte* start_;
};

TEST(NumaNodes, AreReadAsSysfsWritesThem) {
  EXPECT_THAT(parse_node_list("0\n"), ElementsAre(0));
  EXPECT_THAT(parse_node_list("4,0-1"), ElementsAre(0, 1, 4));
  EXPECT_THAT(parse_node_list("2,2-3,3"), ElementsAre(2, 3));
  for (const char* bad : {"", "\n", "x", "0-", "1-0", "0,", ",0", "0;1", "-1", "0-9999", "99999999999"}) {
    EXPECT_THAT(parse_node_list(bad), IsEmpty()) << bad;
  }
}

TEST(NumaNodes, AreNode0WhereTheKernelKnowsNone) {
  EXPECT_THAT(numa_nodes("/proc/self/no-such-folder"), ElementsAre(0));
  EXPECT_FALSE(numa_nodes().empty());
}

TEST(NumaBinding, NamesTheNodesThereAreWhenThereIsNoSuchOne) {
  const Pages pages(1);
  for (const int none : {-1, 4095}) {
    const Status bound = bind_to_node(pages.bytes(), none);
    EXPECT_EQ(bound.code(), Code::kInvalidArgument);
    EXPECT_THAT(bound.message(), AllOf(HasSubstr("node " + std::to_string(none)),
                                       HasSubstr("have some are " + std::to_string(numa_nodes().front()))));
  }
}

TEST(NumaBinding, PutsPagesOnTheNodeAndReadsThemBack) {
  for (const int node : numa_nodes()) {
    for (const NodeBinding binding : {NodeBinding::kPreferred, NodeBinding::kOnly}) {
      const Pages pages(8);
      const Status bound = bind_to_node(pages.bytes(), node, binding);
      if (bound.code() == Code::kUnimplemented || bound.code() == Code::kPermissionDenied) {
        GTEST_SKIP() << bound.message();
      }
      ASSERT_TRUE(bound.ok()) << bound.to_string();
      for (std::size_t i = 0; i < 5; ++i) pages.bytes()[i * Pages::page()] = std::byte{1};
      const Result<PagesByNode> where = pages_by_node(pages.bytes());
      if (!where) GTEST_SKIP() << where.error().message();
      EXPECT_EQ(where->absent, 3u);
      // kPreferred may be given another node's when this one is full.
      std::size_t all = 0;
      for (const std::size_t count : where->on_node) all += count;
      EXPECT_EQ(all, 5u);
      if (binding == NodeBinding::kOnly) {
        EXPECT_EQ(where->on(node), 5u) << node;
      }
    }
  }
}

TEST(NumaBinding, RefusesWhatIsNoWholePage) {
  const Pages pages(2);
  const Status bound = bind_to_node(pages.bytes().subspan(1), numa_nodes().front());
  if (bound.code() == Code::kUnimplemented || bound.code() == Code::kPermissionDenied) {
    GTEST_SKIP() << bound.message();
  }
  EXPECT_EQ(bound.code(), Code::kInvalidArgument) << bound.to_string();
}

TEST(NumaPages, AreCountedEveryStep) {
  const Pages pages(1200);
  for (std::size_t i = 0; i < 1200; i += 2) pages.bytes()[i * Pages::page()] = std::byte{1};
  const Result<PagesByNode> every = pages_by_node(pages.bytes());
  if (!every) GTEST_SKIP() << every.error().message();
  EXPECT_EQ(every->absent, 600u);
  const Result<PagesByNode> second = pages_by_node(pages.bytes(), 2 * Pages::page());
  ASSERT_TRUE(second);
  EXPECT_EQ(second->absent, 0u);
  EXPECT_EQ(pages_by_node({}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(every->on(-1), 0u);
  EXPECT_EQ(every->on(4095), 0u);
}

}  // namespace
}  // namespace fairlead
