#include "verbs/soft/progress/fenced_mutex.h"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>
#include <vector>

namespace fairlead::soft {
namespace {

constexpr int kThreads = 8;
constexpr int kRounds = 20'000;

template <typename Body>
void in_threads(Body body) {
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(body);
  for (std::thread& thread : threads) thread.join();
}

// More threads than cores, so that some wait for a holder that does not run.
TEST(FencedMutex, LetsOneInAtATimeAndWakesWhoWaits) {
  FencedMutex mutex;
  int count = 0;
  in_threads([&] {
    for (int round = 0; round < kRounds; ++round) {
      const std::lock_guard guard(mutex);
      ++count;
    }
  });
  EXPECT_EQ(count, kThreads * kRounds);
}

TEST(FencedMutex, TryLockDoesNotWait) {
  FencedMutex mutex;
  ASSERT_TRUE(mutex.try_lock());
  EXPECT_FALSE(mutex.try_lock());
  mutex.unlock();
  EXPECT_TRUE(mutex.try_lock());
}

// What it is for: work that is left with who has the lock is done, though nobody comes again.
TEST(FencedMutex, WorkThatIsLeftWithTheHolderIsDone) {
  FencedMutex mutex;
  std::atomic<int> left{0};
  int done = 0;
  const auto work = [&] {
    while (left.load() != 0 && mutex.try_lock()) {
      done += left.exchange(0);
      mutex.unlock();
    }
  };
  in_threads([&] {
    for (int round = 0; round < kRounds; ++round) {
      left.fetch_add(1);
      work();
    }
  });
  EXPECT_EQ(left.load(), 0);
  EXPECT_EQ(done, kThreads * kRounds);
}

}  // namespace
}  // namespace fairlead::soft
