#include "base/spin_lock.h"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>
#include <vector>

namespace fairlead {
namespace {

// More threads than cores, so that some wait for a holder that does not run.
TEST(SpinLock, LetsOneInAtATime) {
  constexpr int kThreads = 8;
  constexpr int kRounds = 20'000;
  SpinLock lock;
  int count = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        const std::lock_guard guard(lock);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, kThreads * kRounds);
}

TEST(SpinLock, TryLockDoesNotWait) {
  SpinLock lock;
  ASSERT_TRUE(lock.try_lock());
  EXPECT_FALSE(lock.try_lock());
  lock.unlock();
  EXPECT_TRUE(lock.try_lock());
}

}  // namespace
}  // namespace fairlead
