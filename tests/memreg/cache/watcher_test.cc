// What is watched no more, and what is left alone: the application may watch memory itself.
#include "memreg/cache/watcher.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/unique_fd.h"
#include "cached_memory.h"
#include "memreg/cache/mappings.h"

namespace fairlead::memreg::cache {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

bool is_watched(Range range) {
  const std::vector<Range> tracked = tracked_mappings();
  return std::any_of(tracked.begin(), tracked.end(), [range](Range each) { return each.overlaps(range); });
}

/// A cache whose watcher says what it is about to watch no more.
class CacheUnwatches : public RegistrationCacheTest {
 protected:
  void SetUp() override {
    RegistrationCacheTest::SetUp();
    if (IsSkipped()) return;
    auto opened = Watcher::open({.before_read = {}, .before_unwatch = [this](Range range) {
                                   const std::lock_guard lock(mutex_);
                                   unwatched_.push_back(range);
                                 }});
    ASSERT_TRUE(opened.has_value()) << opened.status().to_string();
    watcher_ = *opened;
    make({.watcher = watcher_});
  }
  void TearDown() override {
    if (watcher_ != nullptr) make();  // the cache goes before the watcher
  }

  /// All that was, once what has changed is told and seen to; ascending.
  std::vector<Range> unwatched() {
    EXPECT_TRUE(watcher_->catch_up());
    cache().trim();
    const std::lock_guard lock(mutex_);
    std::sort(unwatched_.begin(), unwatched_.end(), [](Range a, Range b) { return a.begin < b.begin; });
    return unwatched_;
  }

  /// Memory of the application's own, where such lay that was sent and unmapped.
  Pages mapped_where_some_was_sent() {
    Pages memory(4);
    memory.fill('a');
    EXPECT_EQ(sent(memory.all()), "a");
    const std::span<std::byte> where = memory.all();
    memory.unmap();
    return mapped_again(where, 'b');
  }

  std::mutex mutex_;
  std::vector<Range> unwatched_;
  std::shared_ptr<Watcher> watcher_;
};

TEST_F(CacheUnwatches, NothingThatWasUnmapped) {
  const Pages next = mapped_where_some_was_sent();
  EXPECT_THAT(unwatched(), IsEmpty());
}

TEST_F(CacheUnwatches, WhatIsLeft) {
  Pages memory(9);
  memory.fill('a');
  const Lease held = found(memory.all());  // so that it is not over with the first part
  ASSERT_EQ(::munmap(memory.page(2), 2 * page_bytes()), 0);
  EXPECT_THAT(unwatched(), ElementsAre(range_of(memory.pages(0, 2)), range_of(memory.pages(4, 5))));
}

TEST_F(CacheUnwatches, WhatWasMappedOverNeither) {
  Pages memory(4);
  memory.fill('a');
  EXPECT_EQ(sent(memory.all()), "a");
  const Pages over(1, memory.page(3), MAP_FIXED);
  EXPECT_THAT(unwatched(), ElementsAre(range_of(memory.pages(0, 3))));
}

TEST_F(CacheUnwatches, WhatWasEmptiedAndIsThereYet) {
  Pages memory(4);
  memory.fill('a');
  EXPECT_EQ(sent(memory.all()), "a");
  ASSERT_EQ(::madvise(memory.page(1), page_bytes(), MADV_DONTNEED), 0);
  EXPECT_THAT(unwatched(), ElementsAre(range_of(memory.all())));
  EXPECT_FALSE(is_watched(range_of(memory.all())));
}

TEST_F(CacheUnwatches, WhatStaysWhereItsPagesWereMovedFrom) {
  Pages memory(4), elsewhere(4);
  memory.fill('a');
  EXPECT_EQ(sent(memory.all()), "a");
  if (::mremap(memory.data(), memory.all().size(), memory.all().size(),
               MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, elsewhere.data()) == MAP_FAILED) {
    GTEST_SKIP() << "no MREMAP_DONTUNMAP here";
  }
  EXPECT_THAT(unwatched(), ElementsAre(range_of(memory.all()), range_of(elsewhere.all())));
  EXPECT_FALSE(is_watched(range_of(memory.all())));
  EXPECT_FALSE(is_watched(range_of(elsewhere.all())));
}

/// Another userfaultfd of this process, as an application's own.
UniqueFd own_userfaultfd() {
  UniqueFd fd(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY)));
  uffdio_api api{.api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP, .ioctls = 0};
  if (fd.valid() && ::ioctl(fd.get(), UFFDIO_API, &api) != 0) fd.reset();
  return fd;
}

bool watch_by(const UniqueFd& fd, Range pages) {
  uffdio_register request{
      .range = {.start = pages.begin, .len = pages.size()}, .mode = UFFDIO_REGISTER_MODE_WP, .ioctls = 0};
  return ::ioctl(fd.get(), UFFDIO_REGISTER, &request) == 0;
}

// Before Linux 6.17 one userfaultfd could take away what another watches.
TEST_F(CacheUnwatches, NothingOfTheApplicationsOwn) {
  const UniqueFd own = own_userfaultfd();
  ASSERT_TRUE(own.valid());
  const Pages next = mapped_where_some_was_sent();
  ASSERT_TRUE(watch_by(own, range_of(next.all())));
  EXPECT_THAT(unwatched(), IsEmpty());
  EXPECT_TRUE(is_watched(range_of(next.all())));
  watcher_->unwatch(range_of(next.all()));  // whoever is mistaken
  EXPECT_TRUE(is_watched(range_of(next.all())));
}

/// Hears of all, does nothing, and needs one range.
struct Idle final : Watcher::Listener {
  void on_gone(Range, bool) noexcept override {}
  void on_moved() noexcept override { ++moved; }
  Range not_needed(Range range, std::uintptr_t from) noexcept override {
    if (!needed.overlaps({from, range.end})) return {from, range.end};
    return from < needed.begin ? Range{from, needed.begin} : Range{needed.end, range.end};
  }
  Range needed;
  std::atomic<int> moved{0};
};

// More than the reader of events has room for: all that nobody needs is watched no more, wherever it is.
TEST(WatcherMoves, ManyAtOnce) {
  auto opened = Watcher::open();
  if (!opened) GTEST_SKIP() << "memory cannot be watched here: " << opened.error().message();
  Watcher& watcher = **opened;
  Idle listener;
  watcher.add(listener);
  for (const std::size_t count : {std::size_t{3}, std::size_t{100}}) {
    listener.moved = 0;
    const Pages from(2 * count), to(2 * count), kept(3);
    ASSERT_TRUE(watcher.watch(range_of(kept.all())).ok());
    listener.needed = range_of(kept.pages(1, 1));
    for (std::size_t i = 0; i < 2 * count; i += 2) {
      ASSERT_TRUE(watcher.watch(range_of(from.pages(i, 1))).ok());
      ASSERT_EQ(::mremap(from.page(i), page_bytes(), page_bytes(), MREMAP_MAYMOVE | MREMAP_FIXED, to.page(i)),
                to.page(i));
    }
    ASSERT_TRUE(watcher.catch_up());
    EXPECT_EQ(listener.moved.load(), static_cast<int>(count));
    EXPECT_TRUE(is_watched(range_of(to.all())));
    watcher.unwatch_moved();
    ASSERT_TRUE(watcher.catch_up()) << "what tells of changes is watched still: " << count;
    EXPECT_FALSE(is_watched(range_of(to.all()))) << count;
    EXPECT_TRUE(is_watched(range_of(kept.pages(1, 1)))) << count;
    listener.needed = {};
  }
  watcher.remove(listener);
}

}  // namespace
}  // namespace fairlead::memreg::cache
