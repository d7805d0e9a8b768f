// The small parts: ranges, the row of entries, what the kernel says is mapped.
#include "memreg/cache/entry.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <random>
#include <set>
#include <vector>

#include "base/unique_fd.h"
#include "cached_memory.h"
#include "memreg/cache/mappings.h"

namespace fairlead::memreg::cache {
namespace {

TEST(Ranges, ThoseThatTouchBecomeOne) {
  std::vector<Range> ranges;
  add_to(ranges, {10, 20});
  add_to(ranges, {30, 40});
  add_to(ranges, {50, 60});
  EXPECT_EQ(ranges, (std::vector<Range>{{10, 20}, {30, 40}, {50, 60}}));
  add_to(ranges, {20, 30});
  EXPECT_EQ(ranges, (std::vector<Range>{{10, 40}, {50, 60}}));
  add_to(ranges, {12, 13});
  add_to(ranges, {0, 5});
  EXPECT_EQ(ranges, (std::vector<Range>{{0, 5}, {10, 40}, {50, 60}}));
  add_to(ranges, {1, 100});
  EXPECT_EQ(ranges, (std::vector<Range>{{0, 100}}));
}

TEST(Ranges, HoldWhatASetOfPointsWould) {
  std::mt19937 random(7);
  std::vector<Range> ranges;
  std::set<std::uintptr_t> points;
  for (int i = 0; i < 500; ++i) {
    const std::uintptr_t begin = random() % 2000, end = begin + 1 + random() % 5;
    add_to(ranges, {begin, end});
    for (std::uintptr_t at = begin; at < end; ++at) points.insert(at);
    std::set<std::uintptr_t> held;
    for (std::size_t r = 0; r < ranges.size(); ++r) {
      if (r > 0) {
        ASSERT_LT(ranges[r - 1].end, ranges[r].begin);
      }
      for (std::uintptr_t at = ranges[r].begin; at < ranges[r].end; ++at) held.insert(at);
    }
    ASSERT_EQ(held, points);
  }
}

TEST(FewRanges, LeaveTheRest) {
  FewRanges few;
  EXPECT_EQ(few.rest_of({100, 200}), (std::vector<Range>{{100, 200}}));
  few.add({120, 130});
  few.add({150, 160});
  few.add({130, 140});
  EXPECT_EQ(few.rest_of({100, 200}), (std::vector<Range>{{100, 120}, {140, 150}, {160, 200}}));
  EXPECT_EQ(few.rest_of({125, 155}), (std::vector<Range>{{140, 150}}));
  EXPECT_TRUE(few.rest_of({120, 140}).empty());
  few.clear();
  EXPECT_EQ(few.rest_of({100, 200}), (std::vector<Range>{{100, 200}}));
}

// Of more than there is room for, what lies between some is held along: never less than was added.
TEST(FewRanges, HoldAllOfMany) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    FewRanges few;
    std::set<std::uintptr_t> held;
    for (int i = 0; i < 8; ++i) {
      const std::uintptr_t begin = random() % 200, end = begin + 1 + random() % 9;
      few.add({begin, end});
      for (std::uintptr_t at = begin; at < end; ++at) held.insert(at);
      std::uintptr_t last = 0;
      for (const Range& rest : few.rest_of({0, 250})) {
        ASSERT_FALSE(rest.empty());
        ASSERT_TRUE(last <= rest.begin);
        last = rest.end;
        for (std::uintptr_t at = rest.begin; at < rest.end; ++at) ASSERT_FALSE(held.contains(at));
      }
    }
  }
}

TEST(Entries, AreFoundByWhatTheyHold) {
  EntryIndex index;
  std::vector<Entry*> room;
  room.reserve(8);
  index.move_to(room);
  Entry low({100, 200}), high({300, 400}), middle({200, 300});
  index.insert(high);
  index.insert(low);
  EXPECT_EQ(index.holding({150, 200}), &low);
  EXPECT_EQ(index.holding({300, 301}), &high);
  EXPECT_EQ(index.holding({150, 201}), nullptr);
  EXPECT_EQ(index.holding({250, 260}), nullptr);
  EXPECT_EQ(index.overlapping({199, 301}).size(), 2U);
  EXPECT_TRUE(index.overlapping({200, 300}).empty());
  EXPECT_EQ(next_gap(index.overlapping({100, 400}), {100, 400}, 100), (Range{200, 300}));
  EXPECT_TRUE(next_gap(index.overlapping({100, 400}), {100, 400}, 300).empty());
  EXPECT_EQ(next_gap(index.overlapping({50, 500}), {50, 500}, 50), (Range{50, 100}));
  EXPECT_EQ(next_gap(index.overlapping({50, 500}), {50, 500}, 300), (Range{400, 500}));
  index.insert(middle);
  EXPECT_EQ(index.size(), 3U);
  index.remove(index.overlapping({150, 250}));
  EXPECT_EQ(index.size(), 1U);
  EXPECT_EQ(index.holding({300, 400}), &high);
  index.remove(high);
  EXPECT_EQ(index.size(), 0U);
}

TEST(Entries, ServeWhatWasAskedForAlone) {
  Entry entry({100, 200});
  entry.named = {{100, 120}, {150, 200}};
  EXPECT_TRUE(entry.serves({100, 120}));
  EXPECT_TRUE(entry.serves({160, 170}));
  EXPECT_FALSE(entry.serves({110, 130}));
  EXPECT_FALSE(entry.serves({120, 150}));
  EXPECT_FALSE(entry.serves({150, 201}));
}

TEST(Mappings, AreReadFromTheKernelsLines) {
  Mapping mapping;
  ASSERT_TRUE(read_mapping("7f00a000-7f00c000 rw-p 00000000 00:00 0 ", mapping));
  EXPECT_EQ(mapping.range, (Range{0x7f00a000, 0x7f00c000}));
  EXPECT_TRUE(mapping.anonymous);
  ASSERT_TRUE(read_mapping("7f00a000-7f00c000 rw-p 00000000 00:00 0                          [heap]", mapping));
  EXPECT_TRUE(mapping.anonymous);
  ASSERT_TRUE(
      read_mapping("7f00a000-7f00c000 rw-p 00000000 fe:00 247498                     /usr/bin/with space", mapping));
  EXPECT_FALSE(mapping.anonymous) << "pages of a file";
  EXPECT_EQ(mapping.name, "/usr/bin/with space");
  ASSERT_TRUE(read_mapping("7f00a000-7f00c000 rw-s 00000000 00:01 2065 /memfd:x (deleted)", mapping));
  EXPECT_FALSE(mapping.anonymous);
  ASSERT_TRUE(read_mapping("7ffd1000-7ffd3000 r-xp 00000000 00:00 0                          [vdso]", mapping));
  EXPECT_FALSE(mapping.anonymous);
  for (const char* none : {"", "x", "7f00a000", "7f00a000-zz rw-p 0 00:00 0", "7f00a000-7f00c000 rw 0 00:00 0"}) {
    EXPECT_FALSE(read_mapping(none, mapping)) << none;
  }
}

TEST(Mappings, OfThisProcess) {
  const Pages mapped(8);
  std::byte* const memory = mapped.data();
  const Range pages = range_of(mapped.all());
  ASSERT_EQ(::munmap(memory + 3 * page_bytes(), page_bytes()), 0);
  const auto found = mappings_near(pages);
  ASSERT_TRUE(found.has_value()) << found.status().to_string();
  const std::vector<Mapping> runs = joined(*found);
  EXPECT_TRUE(check_watchable(runs, {pages.begin, pages.begin + 3 * page_bytes()}).ok());
  EXPECT_EQ(check_watchable(runs, pages).code(), Code::kInvalidArgument);
  // The two ways to learn of them say the same.
  const UniqueFd maps(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(read_mappings(maps.get(), pages), *found);
}

}  // namespace
}  // namespace fairlead::memreg::cache
