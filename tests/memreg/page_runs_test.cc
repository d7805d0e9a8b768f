#include "memreg/page_runs.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "memreg/size_class.h"

namespace fairlead::memreg {
namespace {

using Page = PageRuns::Page;

TEST(PageRuns, TakeTheSmallestRunThatHasRoom) {
  PageRuns runs;
  runs.add(100, 20);
  runs.add(200, 8);
  EXPECT_EQ(runs.take(6), 200u);
  EXPECT_EQ(runs.take(3), 100u);
  EXPECT_EQ(runs.take(2), 206u);
  EXPECT_EQ(runs.take(18), std::nullopt);
  EXPECT_EQ(runs.take(17), 103u);
  EXPECT_EQ(runs.take(1), std::nullopt);
  EXPECT_EQ(runs.free_pages(), 0u);
}

TEST(PageRuns, BecomeOneWithTheirNeighbours) {
  PageRuns runs;
  runs.add(0, 10);
  ASSERT_EQ(runs.take(10), 0u);
  runs.give(0, 2);
  runs.give(8, 2);
  runs.give(4, 2);
  EXPECT_EQ(runs.runs(), 3u);
  runs.give(2, 2);
  EXPECT_EQ(runs.runs(), 2u);
  EXPECT_FALSE(runs.wholly_free(0));
  runs.give(6, 2);
  EXPECT_EQ(runs.runs(), 1u);
  EXPECT_TRUE(runs.wholly_free(0));
}

// Arenas may lie side by side; each goes back alone.
TEST(PageRuns, NeverGoFromOneSpanToTheNext) {
  PageRuns runs;
  runs.add(10, 10);
  runs.add(20, 10);
  EXPECT_EQ(runs.take(11), std::nullopt);
  ASSERT_EQ(runs.take(10), 10u);
  ASSERT_EQ(runs.take(10), 20u);
  runs.give(20, 10);
  runs.give(10, 10);
  EXPECT_EQ(runs.runs(), 2u);
  EXPECT_TRUE(runs.wholly_free(10));
  runs.remove(10);
  EXPECT_TRUE(runs.wholly_free(20));
  EXPECT_EQ(runs.free_pages(), 10u);
}

TEST(PageRuns, BeginWhereTheyAreAligned) {
  PageRuns runs;
  runs.add(1, 31);
  EXPECT_EQ(runs.take(4, 16), 16u);
  EXPECT_EQ(runs.take(4, 8), 24u);
  EXPECT_EQ(runs.take(16, 16), std::nullopt);
  EXPECT_EQ(runs.free_pages(), 23u);
  EXPECT_EQ(runs.runs(), 3u);
}

// Against a set of pages.
TEST(PageRuns, AreNeverGivenTwice) {
  std::mt19937 random(7);
  PageRuns runs;
  std::set<Page> free;
  const std::map<Page, std::size_t> spans{{3, 50}, {53, 20}, {100, 64}};
  for (const auto& [begin, pages] : spans) {
    runs.add(begin, pages);
    for (Page page = begin; page < begin + pages; ++page) free.insert(page);
  }
  const auto span_of = [&](Page page) { return std::prev(spans.upper_bound(page))->first; };
  std::vector<std::pair<Page, std::size_t>> taken;
  for (int i = 0; i < 20'000; ++i) {
    if (random() % 2 == 0) {
      const std::size_t pages = 1 + random() % 9, alignment = std::size_t{1} << (random() % 4);
      const auto first = runs.take(pages, alignment);
      if (!first) {
        // Then there is none.
        for (const Page page : free) {
          bool room = page % alignment == 0;
          for (std::size_t j = 0; j < pages; ++j) {
            room = room && free.contains(page + j) && span_of(page + j) == span_of(page);
          }
          // A run is looked at for an alignment in so many places; what is not found then is no more than that.
          ASSERT_FALSE(room && alignment == 1) << pages;
        }
        continue;
      }
      ASSERT_EQ(*first % alignment, 0u);
      ASSERT_EQ(span_of(*first), span_of(*first + pages - 1));
      for (std::size_t j = 0; j < pages; ++j) ASSERT_EQ(free.erase(*first + j), 1u);
      taken.emplace_back(*first, pages);
    } else if (!taken.empty()) {
      auto& [first, pages] = taken[random() % taken.size()];
      const std::size_t part = 1 + random() % pages;  // in pieces
      runs.give(first, part);
      for (std::size_t j = 0; j < part; ++j) ASSERT_TRUE(free.insert(first + j).second);
      first += part;
      pages -= part;
      std::erase_if(taken, [](const auto& each) { return each.second == 0; });
    }
    ASSERT_EQ(runs.free_pages(), free.size());
  }
  for (const auto& [first, pages] : taken) runs.give(first, pages);
  EXPECT_EQ(runs.runs(), spans.size());
  for (const auto& [begin, pages] : spans) EXPECT_TRUE(runs.wholly_free(begin));
}

TEST(SizeClasses, ArePowersOfTwoAndQuarters) {
  EXPECT_EQ(class_size(1), 64u);
  EXPECT_EQ(class_size(64), 64u);
  EXPECT_EQ(class_size(65), 128u);
  EXPECT_EQ(class_size(257), 320u);
  EXPECT_EQ(class_size(1025), 1280u);
  EXPECT_EQ(class_size(4096), 4096u);
  EXPECT_EQ(class_size(4097), 8192u);
  EXPECT_EQ(class_size((1u << 20) + 1), (1u << 20) + (1u << 18));
  EXPECT_EQ(class_size(7u << 18), 7u << 18);
}

TEST(SizeClasses, NeverShrinkAndStayAligned) {
  for (std::size_t size = 1; size < 300'000; size += 7) {
    const std::size_t rounded = class_size(size);
    ASSERT_GE(rounded, size);
    ASSERT_EQ(class_size(rounded), rounded) << size;
    ASSERT_EQ(rounded % (size < page_size() ? 64 : page_size()), 0u) << size;
    if (rounded > kMostClassBytes) continue;
    ASSERT_LT(class_index(rounded), kClasses) << size;
    ASSERT_EQ(class_bytes_of(class_index(rounded)), rounded) << size;
  }
  EXPECT_EQ(class_size(std::numeric_limits<std::size_t>::max()), std::numeric_limits<std::size_t>::max());
}

}  // namespace
}  // namespace fairlead::memreg
