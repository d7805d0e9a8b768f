#include "datapath/command/client/readers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>

namespace fairlead::datapath::command {
namespace {

using Clock = Readers::Clock;
using std::chrono::microseconds;

constexpr Clock::time_point kStart{std::chrono::hours(1)}, kNever = Clock::time_point::max();

/// A thread that sleeps until its condition holds, or it is its turn.
class Sleeper {
 public:
  Sleeper(std::mutex& mutex, Readers& readers, Haste haste) {
    std::atomic<bool> holds{false};
    thread_ = std::thread([this, &mutex, &readers, &holds, haste] {
      std::unique_lock lock(mutex);
      holds.store(true);
      readers.sleep(lock, [this] { return done_.load(); }, haste, kNever);
      awake_.store(true);
    });
    while (!holds.load()) std::this_thread::yield();
    const std::lock_guard asleep(mutex);  // which it gives away when it sleeps
  }
  ~Sleeper() { thread_.join(); }
  void finish() { done_.store(true); }
  void join_awake() {
    while (!awake_.load()) std::this_thread::yield();
  }
  [[nodiscard]] bool is_awake() const { return awake_.load(); }

 private:
  std::atomic<bool> done_{false}, awake_{false};
  std::thread thread_;
};

TEST(Readers, OneReadsAtATime) {
  Readers readers;
  ASSERT_TRUE(readers.begin(Haste::kYes, kStart));
  EXPECT_FALSE(readers.begin(Haste::kYes, kStart));
  EXPECT_FALSE(readers.begin(Haste::kNo, kStart + std::chrono::seconds(1)));
  readers.end();
  EXPECT_TRUE(readers.begin(Haste::kYes, kStart));
}

/// One in haste waits for something that comes at once.
void read_hastily(Readers& readers, Clock::time_point now) {
  readers.come(Haste::kYes, now);
  ASSERT_TRUE(readers.begin(Haste::kYes, now));
  readers.end();
  readers.call_next(Haste::kYes);
}

TEST(Readers, WhoIsInNoHasteLeavesTheReadingToWhoComesAgainAndAgain) {
  Readers readers;
  ASSERT_TRUE(readers.begin(Haste::kNo, kStart)) << "nobody in haste was there before";
  readers.end();
  read_hastily(readers, kStart);
  ASSERT_TRUE(readers.begin(Haste::kNo, kStart)) << "it was there once";
  readers.end();
  read_hastily(readers, kStart + microseconds(1));
  EXPECT_FALSE(readers.begin(Haste::kNo, kStart + Readers::kLinger));
  EXPECT_TRUE(readers.begin(Haste::kNo, kStart + microseconds(1) + Readers::kLinger));
  readers.end();
  read_hastily(readers, kStart + 10 * Readers::kLinger);
  EXPECT_TRUE(readers.begin(Haste::kNo, kStart + 10 * Readers::kLinger)) << "it came, but not at once";
}

TEST(Readers, WhoIsInHasteCallsOthersUnlessItComesAgainAndAgain) {
  std::mutex mutex;
  Readers readers;
  const auto read = [&](Clock::time_point now) {
    const std::lock_guard lock(mutex);
    read_hastily(readers, now);
  };
  Sleeper patient(mutex, readers, Haste::kNo);
  readers.come(Haste::kYes, kStart);  // only one thread is awake
  ASSERT_TRUE(readers.begin(Haste::kYes, kStart));
  readers.end();
  read(kStart + microseconds(1));
  EXPECT_FALSE(patient.is_awake());
  read(kStart + 10 * Readers::kLinger);
  patient.join_awake();
}

TEST(Readers, WhoIsInHasteIsCalledBeforeOthers) {
  std::mutex mutex;
  Readers readers;
  Sleeper patient(mutex, readers, Haste::kNo), hasty(mutex, readers, Haste::kYes);
  {
    const std::lock_guard lock(mutex);
    EXPECT_FALSE(readers.begin(Haste::kNo, kStart)) << "one sleeps that is in haste";
  }
  hasty.join_awake();
  EXPECT_FALSE(patient.is_awake());
  const std::lock_guard lock(mutex);
  EXPECT_TRUE(readers.begin(Haste::kNo, kStart));
  readers.end();
  EXPECT_FALSE(patient.is_awake());
  readers.call_next(Haste::kNo);
}

TEST(Readers, WakesThoseWhoseConditionHolds) {
  std::mutex mutex;
  Readers readers;
  Sleeper one(mutex, readers, Haste::kNo), other(mutex, readers, Haste::kYes);
  one.finish();
  {
    const std::lock_guard lock(mutex);
    readers.wake_done();
  }
  one.join_awake();
  EXPECT_FALSE(other.is_awake());
  const std::lock_guard lock(mutex);
  readers.wake_all();
}

TEST(Readers, NobodySleepsPastItsDeadline) {
  std::mutex mutex;
  Readers readers;
  std::unique_lock lock(mutex);
  readers.sleep(lock, [] { return false; }, Haste::kYes, Clock::now());
  readers.sleep(lock, [] { return false; }, Haste::kNo, Clock::now());
  EXPECT_TRUE(readers.begin(Haste::kNo, kStart)) << "nobody sleeps any more";
}

}  // namespace
}  // namespace fairlead::datapath::command
