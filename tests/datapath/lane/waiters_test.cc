#include "datapath/lane/waiters.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <thread>

namespace fairlead::datapath {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const Waiters::Condition kNever = [] { return false; };
const Waiters::Condition kAlways = [] { return true; };

/// A thread that sleeps among `waiters` until its flag is set, or it is called.
struct Sleeper {
  explicit Sleeper(Waiters& waiters) {
    thread = std::thread([this, &waiters] {
      waiters.sleep(&condition, kNever, Waiters::Clock::now() + seconds(30));
      up = true;
    });
  }
  ~Sleeper() { thread.join(); }

  std::atomic<bool> done{false}, up{false};
  std::atomic<int> asked{0};
  Waiters::Condition condition = [this] {
    ++asked;
    return done.load();
  };
  std::thread thread;
};

/// Its condition was asked before it slept, so it sleeps, or is about to with the lock held.
void await_sleep(const Sleeper& sleeper) {
  while (sleeper.asked == 0) std::this_thread::yield();
}

TEST(Waiters, WhoIsDoneDoesNotSleep) {
  Waiters waiters;
  EXPECT_FALSE(waiters.any());
  waiters.sleep(&kAlways, kNever, Waiters::Clock::time_point::max());
  waiters.sleep(&kNever, kAlways, Waiters::Clock::time_point::max());
  waiters.sleep(nullptr, kNever, Waiters::Clock::now() + milliseconds(1));
  EXPECT_FALSE(waiters.any());
  EXPECT_EQ(waiters.wakes(), 0U);
}

TEST(Waiters, OnlyThoseWhoAreDoneAreWoken) {
  Waiters waiters;
  std::array<std::unique_ptr<Sleeper>, 4> sleepers;
  for (auto& sleeper : sleepers) await_sleep(*(sleeper = std::make_unique<Sleeper>(waiters)));
  waiters.wake_done();
  EXPECT_EQ(waiters.wakes(), 0U);
  std::uint64_t woken = 0;
  for (const std::size_t i : {2U, 0U, 3U, 1U}) {
    sleepers[i]->done = true;
    waiters.wake_done();
    waiters.wake_done();
    EXPECT_EQ(waiters.wakes(), ++woken);
    sleepers[i].reset();
  }
  EXPECT_FALSE(waiters.any());
}

TEST(Waiters, OneAtATimeIsCalledTheOldestFirst) {
  Waiters waiters;
  Sleeper first(waiters);
  await_sleep(first);
  Sleeper second(waiters);
  await_sleep(second);
  waiters.call_one();
  while (!first.up) std::this_thread::yield();
  EXPECT_FALSE(second.up);
  EXPECT_EQ(waiters.wakes(), 1U);
  waiters.call_one();
  while (!second.up) std::this_thread::yield();
  EXPECT_EQ(waiters.wakes(), 2U);
  waiters.call_one();
  EXPECT_EQ(waiters.wakes(), 2U) << "nobody is there";
}

TEST(Waiters, WhoWaitsForNothingIsCalledLast) {
  Waiters waiters;
  std::atomic<bool> idle_up{false};
  std::thread idle([&] {
    waiters.sleep(nullptr, kNever, Waiters::Clock::now() + seconds(30));
    idle_up = true;
  });
  while (!waiters.any()) std::this_thread::yield();
  Sleeper sleeper(waiters);
  await_sleep(sleeper);
  waiters.call_one();
  while (!sleeper.up) std::this_thread::yield();
  EXPECT_FALSE(idle_up);
  waiters.wake_done();
  EXPECT_FALSE(idle_up);
  waiters.call_one();
  idle.join();
  EXPECT_EQ(waiters.wakes(), 2U);
}

TEST(Waiters, AtTheEndAllAreWoken) {
  Waiters waiters;
  Sleeper first(waiters), second(waiters);
  await_sleep(first);
  await_sleep(second);
  waiters.wake_all();
}

}  // namespace
}  // namespace fairlead::datapath
