// Others change what lies there while the cache is asked.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "cached_memory.h"

namespace fairlead::memreg::cache {
namespace {

/// Who comes waits while it is shut.
class Gate {
 public:
  void shut() { shut_.store(true); }
  void open() {
    shut_.store(false);
    shut_.notify_all();
  }
  void pass() const {
    while (shut_.load()) shut_.wait(true);
  }

 private:
  std::atomic<bool> shut_{false};
};

/// Maps pages there as soon as nothing is mapped there any more.
Pages map_when_free(std::span<std::byte> where) {
  for (;;) {
    Pages pages(where.size() / page_bytes(), where.data(), MAP_FIXED_NOREPLACE);
    if (pages.data() == where.data()) return pages;
    std::this_thread::yield();
  }
}

class CacheRaces : public RegistrationCacheTest {
 protected:
  void SetUp() override {
    RegistrationCacheTest::SetUp();
    if (IsSkipped()) return;
    auto opened = Watcher::open({.before_read = [this] { before_read_.pass(); }});
    ASSERT_TRUE(opened.has_value()) << opened.status().to_string();
    watcher_ = *opened;
    make({.watcher = watcher_});
  }
  void TearDown() override { before_read_.open(); }

  Gate before_read_;
  std::shared_ptr<Watcher> watcher_;
};

TEST_F(CacheRaces, MappedAgainByAnotherBeforeTheEventIsRead) {
  Pages memory(4);
  memory.fill('a');
  const std::span<std::byte> where = memory.all();
  EXPECT_EQ(sent(where), "a");
  before_read_.shut();
  std::atomic<bool> unmapped{false};
  std::thread unmaps([&] {
    memory.unmap();
    unmapped.store(true);
  });
  const Pages next = map_when_free(where);
  EXPECT_FALSE(unmapped.load()) << "it waits until somebody reads the event, and nobody does";
  next.fill('b');
  EXPECT_EQ(sent(where), "b");
  EXPECT_EQ(cache().stats().invalidated, 1U) << "the look-up has read it";
  before_read_.open();
  unmaps.join();
}

TEST_F(CacheRaces, MappedAgainBeforeTheEventIsTold) {
  struct Slow final : Watcher::Listener {
    void on_gone(Range, bool) noexcept override { gate.pass(); }
    void on_moved() noexcept override {}
    Range not_needed(Range range, std::uintptr_t from) noexcept override { return {from, range.end}; }
    Gate gate;
  } slow;
  auto opened = Watcher::open();
  ASSERT_TRUE(opened.has_value()) << opened.status().to_string();
  (*opened)->add(slow);  // told before the cache is
  make({.watcher = *opened});
  Pages memory(4);
  memory.fill('a');
  const std::span<std::byte> where = memory.all();
  EXPECT_EQ(sent(where), "a");
  slow.gate.shut();
  memory.unmap();  // ends once the event is read
  const Pages next = mapped_again(where, 'b');
  std::string got;
  std::thread looks([&] { got = sent(where); });
  // Time for one that does not wait to find the old one; one that does is right however long this takes.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  slow.gate.open();
  looks.join();
  EXPECT_EQ(got, "b");
  (*opened)->remove(slow);
}

TEST_F(CacheRaces, ChangedWhileItIsRegistered) {
  Pages memory(8);
  memory.fill('a');
  std::atomic<int> registered{0};
  PageKeepingVerbs double_of_device;
  const RegisterHook plain = verbs::testing::hook_of(double_of_device);
  RegistrationCache own({}, [&](std::span<std::byte> bytes) {
    auto made = plain(bytes);
    if (registered.fetch_add(1) == 0) {
      // The pages are pinned, and change before anybody has them.
      std::thread([&] {
        ::mmap(memory.data(), page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        std::memset(memory.data(), 'b', page_bytes());
      }).join();
    }
    return made;
  });
  const auto lease = own.find(memory.all());
  ASSERT_TRUE(lease.has_value()) << lease.status().to_string();
  EXPECT_EQ(registered.load(), 2);
  const auto sends = double_of_device.sends(verbs::testing::key_of(*lease, memory.data()), memory.data(), 1);
  EXPECT_EQ(sends, std::vector<std::byte>{std::byte{'b'}});
  EXPECT_EQ(double_of_device.live(), 1U);
}

TEST_F(CacheRaces, ManyAskForTheSameAtOnce) {
  Pages memory(64);
  memory.fill('a');
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (std::size_t round = 0; round < 50; ++round) {
        const Lease whole = found(memory.all());
        EXPECT_EQ(sent(memory.pages((i * 7 + round) % 60, 3)), "a");
      }
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(verbs().registrations(), 1U);
  expect_nothing_pinned();
}

/// A place that goes from hand to hand: whoever takes it maps it as soon as the one before has unmapped it, whether
/// or not that one knows so yet.
struct Slot {
  std::span<std::byte> where;
  std::atomic<bool> taken{false};
};

TEST_F(CacheRaces, AddressesGoFromHandToHand) {
  constexpr std::size_t kPages = 3, kSlots = 6, kThreads = 4;
  constexpr int kRounds = 150;
  std::vector<Slot> slots(kSlots);
  auto* const begin = static_cast<std::byte*>(own_address(kSlots * kPages * page_bytes()));
  for (std::size_t i = 0; i < kSlots; ++i) slots[i].where = {begin + i * kPages * page_bytes(), kPages * page_bytes()};
  make({.max_bytes = kSlots * kPages * page_bytes() * 4});
  std::atomic<int> wrong{0};
  const auto work = [&](std::size_t self) {
    for (int round = 0; round < kRounds; ++round) {
      Slot& slot = slots[(self * 5 + static_cast<std::size_t>(round) * (2 * self + 1)) % kSlots];
      if (slot.taken.exchange(true)) continue;
      const char letter = static_cast<char>('a' + (self * 7 + static_cast<std::size_t>(round)) % 26);
      Pages pages = map_when_free(slot.where);
      pages.fill(letter);
      const std::string expected(1, letter);
      wrong += sent(slot.where) != expected;
      if (round % 3 == 0) {
        ::madvise(pages.page(1), page_bytes(), MADV_DONTNEED);
        std::memset(pages.page(1), letter, page_bytes());
      } else if (round % 3 == 1) {
        ::mmap(pages.page(2), page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        std::memset(pages.page(2), letter, page_bytes());
      }
      wrong += sent(slot.where) != expected;
      wrong += sent(slot.where.subspan(page_bytes() / 2, page_bytes())) != expected;
      slot.taken.store(false);
      pages.unmap();
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t self = 0; self < kThreads; ++self) threads.emplace_back(work, self);
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(wrong.load(), 0);
  expect_nothing_pinned();
}

TEST_F(CacheRaces, TheEndIsCertainWhileOthersUnmap) {
  for (int round = 0; round < 100; ++round) {
    auto opened = Watcher::open();
    ASSERT_TRUE(opened.has_value()) << opened.status().to_string();
    make({.watcher = *opened}, {.keeps_pages = false});
    std::vector<Pages> memory;
    for (int i = 0; i < 4; ++i) memory.emplace_back(2);
    for (const Pages& each : memory) found(each.all());
    std::atomic<bool> go{false};
    std::thread unmaps([&] {
      go.wait(false);
      for (Pages& each : memory) each.unmap();
    });
    go.store(true);
    go.notify_all();
    make({.watcher = watcher_}, {.keeps_pages = false});  // ends the cache before
    opened->reset();                                      // and what it watched with
    unmaps.join();
  }
}

}  // namespace
}  // namespace fairlead::memreg::cache
