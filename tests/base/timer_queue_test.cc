#include "base/timer_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

namespace fairlead {
namespace {

class Owner;

// A queue of `size` entries whose owners are numbers in disguise: the queue never looks at them.
struct Timers {
  explicit Timers(std::size_t size) {
    queue.reserve(size);
    for (std::size_t i = 0; i < size; ++i) {
      entries.push_back(std::make_unique<TimerEntry<Owner>>(reinterpret_cast<Owner*>(i + 1)));  // NOLINT
    }
  }
  /// The number of the entry that is due, or -1.
  int pop(Nanos now) {
    Owner* qp = queue.pop_due(now);
    return static_cast<int>(reinterpret_cast<std::uintptr_t>(qp)) - 1;
  }
  TimerQueue<Owner> queue;
  std::vector<std::unique_ptr<TimerEntry<Owner>>> entries;
};

TEST(TimerQueue, EarliestFirstAndNothingBeforeItsTime) {
  Timers t(3);
  EXPECT_EQ(t.queue.next(), 0U);
  t.queue.wake(*t.entries[0], 30);
  t.queue.wake(*t.entries[1], 10);
  t.queue.wake(*t.entries[2], 20);
  EXPECT_EQ(t.queue.next(), 10U);
  EXPECT_EQ(t.pop(9), -1);
  EXPECT_EQ(t.pop(25), 1);
  EXPECT_EQ(t.pop(25), 2);
  EXPECT_EQ(t.pop(25), -1);
  EXPECT_EQ(t.pop(30), 0);
}

TEST(TimerQueue, OnlyAnEarlierTimeMovesAnEntry) {
  Timers t(1);
  t.queue.wake(*t.entries[0], 20);
  t.queue.wake(*t.entries[0], 50);
  EXPECT_EQ(t.queue.next(), 20U);
  t.queue.wake(*t.entries[0], 5);
  EXPECT_EQ(t.pop(5), 0);
  EXPECT_EQ(t.queue.next(), 0U);  // once, not twice
}

TEST(TimerQueue, AnEntryThatEndsLeavesIt) {
  Timers t(3);
  for (std::size_t i = 0; i < 3; ++i) t.queue.wake(*t.entries[i], 10 * (i + 1));
  t.entries[0].reset();
  EXPECT_EQ(t.queue.next(), 20U);
  EXPECT_EQ(t.pop(100), 1);
  EXPECT_EQ(t.pop(100), 2);
  EXPECT_EQ(t.pop(100), -1);
}

TEST(TimerQueue, RandomWorkAgreesWithAList) {
  constexpr std::size_t kSize = 50;
  Timers t(kSize);
  std::vector<Nanos> expected(kSize, 0);
  std::mt19937 random(7);
  Nanos now = 1;
  for (int step = 0; step < 20'000; ++step) {
    const std::size_t i = random() % kSize;
    switch (random() % 4) {
      case 0:
        t.queue.remove(*t.entries[i]);
        expected[i] = 0;
        break;
      case 1: {
        now += random() % 20;
        while (true) {
          Nanos least = 0;
          for (const Nanos at : expected) {
            if (at != 0 && (least == 0 || at < least)) least = at;
          }
          ASSERT_EQ(t.queue.next(), least);
          const int due = t.pop(now);
          if (due < 0) {
            ASSERT_TRUE(least == 0 || least > now);
            break;
          }
          ASSERT_EQ(expected[static_cast<std::size_t>(due)], least);
          expected[static_cast<std::size_t>(due)] = 0;
        }
        break;
      }
      default: {
        const Nanos at = now + 1 + random() % 1000;
        t.queue.wake(*t.entries[i], at);
        expected[i] = expected[i] == 0 ? at : std::min(expected[i], at);
      }
    }
  }
}

}  // namespace
}  // namespace fairlead
