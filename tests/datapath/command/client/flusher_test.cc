// Who sends what has waited in a buffer: it looks while there is something, sleeps otherwise, and misses nothing.
#include "datapath/command/client/flusher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace fairlead::datapath::command {
namespace {

using std::chrono::microseconds;

/// As long as it takes: a test that waits in vain meets its limit.
template <typename Done>
void wait_for(Done done) {
  while (!done()) std::this_thread::sleep_for(microseconds(50));
}

TEST(Flusher, LooksOnlyWhenArmed) {
  std::atomic<int> looks{0};
  {
    Flusher flusher;
    ASSERT_TRUE(flusher.start(microseconds(20), [&] {
      ++looks;
      return Flusher::Looked();
    }));
  }
  EXPECT_EQ(looks, 0);
}

TEST(Flusher, SleepsWhenThereWasNothingForAWhile) {
  std::atomic<int> looks{0};
  Flusher flusher;
  ASSERT_TRUE(flusher.start(microseconds(1), [&] {
    ++looks;
    return Flusher::Looked();
  }));
  flusher.arm();
  wait_for([&] { return looks >= 17; });  // 16, and once more when it says that it sleeps
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_EQ(looks, 17);
  flusher.arm();
  wait_for([&] { return looks >= 34; });
}

TEST(Flusher, LooksOnWhileSomethingIsNotDue) {
  std::atomic<int> looks{0};
  std::atomic<bool> any{true};
  Flusher flusher;
  ASSERT_TRUE(flusher.start(microseconds(1), [&] {
    ++looks;
    return Flusher::Looked{false, any ? std::optional<Flusher::Clock::duration>(1) : std::nullopt};
  }));
  flusher.arm();
  wait_for([&] { return looks >= 100; });
  any = false;
}

// Armed at the very moment that it falls asleep, too.
TEST(Flusher, MissesNothing) {
  std::atomic<bool> buffered{false};
  std::atomic<int> sent{0};
  Flusher flusher;
  ASSERT_TRUE(flusher.start(microseconds(1), [&] {
    if (!buffered.exchange(false)) return Flusher::Looked();
    ++sent;
    return Flusher::Looked{true, std::nullopt};
  }));
  for (int i = 1; i <= 300; ++i) {
    std::this_thread::sleep_for(microseconds(i * 7 % 900));
    buffered = true;
    flusher.arm();
    wait_for([&] { return sent == i; });
  }
}

}  // namespace
}  // namespace fairlead::datapath::command
