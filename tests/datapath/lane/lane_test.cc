#include "datapath/lane/lane.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/readable.h"
#include "tests/refused_call.h"

namespace fairlead::datapath {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kLong{30};  // what ends a test that hangs

/// Something to drive. Only one thread may be inside at a time.
class Driven final : public Domain {
 public:
  bool progress() noexcept override {
    if (inside_.exchange(true)) ++collisions;
    ++rounds;
    const bool did = on_round && on_round();
    inside_ = false;
    return did;
  }
  bool arm() noexcept override {
    ++arms;
    armed = true;
    return may_sleep;
  }
  void disarm() noexcept override {
    ++disarms;
    armed = false;
  }
  void settle() noexcept override { ++settles; }
  milliseconds sleep_limit() noexcept override { return limit; }

  std::function<bool()> on_round;  // the driver's
  std::atomic<std::uint64_t> rounds{0}, collisions{0}, arms{0}, disarms{0}, settles{0};
  std::atomic<bool> may_sleep{true}, armed{true};
  milliseconds limit{10'000};

 private:
  std::atomic<bool> inside_{false};
};

class LaneTest : public testing::Test {
 protected:
  ~LaneTest() override { EXPECT_EQ(driven.collisions, 0u) << "two threads drove at once"; }
  static Clock::time_point soon() { return Clock::now() + kLong; }

  Driven driven;
};

TEST_F(LaneTest, ItsThreadTakesNoSignals) {
  Lane lane(driven, Progress::kThread, microseconds(0));
  ASSERT_TRUE(lane.valid());
  ASSERT_TRUE(lane.start().ok());
  sigset_t blocked;
  ::sigemptyset(&blocked);
  lane.call([&blocked] { ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked); });
  for (const int signal : {SIGTERM, SIGALRM, SIGPROF}) EXPECT_EQ(::sigismember(&blocked, signal), 1) << signal;
  lane.stop();
}

TEST_F(LaneTest, WithoutDescriptorsItIsNotValid) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const Lane lane(driven, Progress::kApplication, microseconds(0));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(lane.valid());
}

TEST_F(LaneTest, WithoutRoomToWatchItIsNotValid) {
  constexpr int kSkipped = 77;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (!test::refuse_call(SYS_epoll_ctl, ENOSPC)) ::_exit(kSkipped);
    const Lane lane(driven, Progress::kApplication, microseconds(0));
    ::_exit(lane.valid() ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kSkipped) GTEST_SKIP() << "no seccomp filters here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// One of two that sleep takes the kick, and is not who drives next.
TEST_F(LaneTest, AKickIsPassedOnWhileThereIsWork) {
  Lane lane(driven, Progress::kApplication, microseconds(0));
  milliseconds limit = milliseconds::max();
  const int fd = lane.begin_sleep(limit);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(lane.begin_sleep(limit), fd);
  std::atomic<bool> drives{false}, go_on{false}, ran{false};
  driven.on_round = [&] {
    drives = true;
    while (!go_on) std::this_thread::yield();
    return false;
  };
  std::thread driver([&] { lane.poll_once(); });
  while (!drives) std::this_thread::yield();
  lane.submit([&ran] { ran = true; });
  EXPECT_TRUE(readable(fd));
  lane.end_sleep();
  EXPECT_TRUE(readable(fd)) << "the other sleeps on, and nobody wakes it";
  go_on = true;
  driver.join();
  driven.on_round = nullptr;
  EXPECT_TRUE(lane.wait_until([&ran] { return ran.load(); }, soon()));
  lane.end_sleep();
  EXPECT_FALSE(readable(fd)) << "there is nothing to pass on for";
}

TEST_F(LaneTest, WhatIsReservedEndsNoSleepUntilItIsWatched) {
  Lane lane(driven, Progress::kApplication, microseconds(0));
  const UniqueFd ready(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  ASSERT_TRUE(lane.reserve_watch(ready.get()));
  EXPECT_FALSE(lane.watch(ready.get())) << "it is there already";
  milliseconds limit = milliseconds::max();
  const int fd = lane.begin_sleep(limit);
  ASSERT_GE(fd, 0);
  EXPECT_FALSE(readable(fd));
  lane.watch_reserved(ready.get());
  EXPECT_TRUE(readable(fd));
  lane.unwatch(ready.get());
  EXPECT_FALSE(readable(fd));
  lane.end_sleep();
  lane.stop();
}

TEST_F(LaneTest, WorkRunsAtOnceWhereNobodyDrives) {
  Lane lane(driven, Progress::kApplication, microseconds(0));
  std::thread::id ran;
  lane.submit([&] { ran = std::this_thread::get_id(); });
  EXPECT_EQ(ran, std::this_thread::get_id());
  lane.stop();
}

TEST_F(LaneTest, WorkThatIsSubmittedFromWorkRunsToo) {
  Lane lane(driven, Progress::kApplication, microseconds(0));
  std::vector<int> order;
  lane.submit([&] {
    order.push_back(1);
    lane.submit([&] { order.push_back(2); });
    order.push_back(3);
  });
  ASSERT_TRUE(lane.wait_until([&] { return order.size() == 3; }, soon()));
  EXPECT_EQ(order, (std::vector<int>{1, 3, 2})) << "not inside of the other";
  lane.stop();
}

TEST_F(LaneTest, WhoWaitsDrives) {
  Lane lane(driven, Progress::kApplication, microseconds(0));
  int left = 10;
  driven.on_round = [&] { return left != 0 && left-- != 0; };
  EXPECT_TRUE(lane.wait_until([&] { return left == 0; }, soon()));
  EXPECT_GE(driven.rounds, 10u);
  lane.stop();
}

TEST_F(LaneTest, ADeadlineEndsAWait) {
  Lane lane(driven, Progress::kApplication, microseconds(0));
  EXPECT_FALSE(lane.wait_until([] { return false; }, Clock::now() + milliseconds(20)));
  EXPECT_FALSE(lane.wait_until([] { return false; }, Clock::now() - seconds(1)));
  EXPECT_TRUE(lane.wait_until([] { return true; }, Clock::now() - seconds(1))) << "what is done needs no time";
  lane.stop();
}

TEST_F(LaneTest, ASleeperIsWokenByWorkByAKickAndByADescriptor) {
  Lane lane(driven, Progress::kApplication, microseconds(0));
  const UniqueFd ready(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  ASSERT_TRUE(lane.watch(ready.get()));
  const auto sleeps = [&lane](std::uint64_t before) {
    while (lane.sleeps() == before) std::this_thread::yield();
  };
  for (int way = 0; way < 3; ++way) {
    std::atomic<bool> done{false};
    const std::uint64_t before = lane.sleeps();
    std::thread waiter([&] { EXPECT_TRUE(lane.wait_until([&] { return done.load(); }, soon())); });
    sleeps(before);
    if (way == 0) lane.submit([&] { done = true; });
    if (way != 0) done = true;
    if (way == 1) lane.kick();
    if (way == 2) ::eventfd_write(ready.get(), 1);
    waiter.join();
    EXPECT_TRUE(done);
  }
  lane.unwatch(ready.get());
  lane.stop();
}

TEST_F(LaneTest, NobodySleepsWhereSomethingIsThere) {
  Lane lane(driven, Progress::kApplication, microseconds(0));
  driven.may_sleep = false;
  EXPECT_FALSE(lane.wait_until([] { return false; }, Clock::now() + milliseconds(5)));
  EXPECT_NE(driven.arms, 0u);
  EXPECT_EQ(lane.sleeps(), 0u);
  lane.stop();
}

TEST_F(LaneTest, WhoDrivesForLongNeedsNobodyWokenUntilItSleeps) {
  constexpr int kLongTime = 4000;  // rounds
  Lane lane(driven, Progress::kApplication, microseconds(0));
  for (int time = 1; time <= 3; ++time) {
    int left = kLongTime;
    driven.on_round = [&] { return left != 0 && left-- != 0; };
    EXPECT_TRUE(lane.wait_until([&] { return left == 0; }, soon()));
    EXPECT_EQ(driven.disarms, static_cast<std::uint64_t>(time));
    EXPECT_FALSE(driven.armed);
    EXPECT_FALSE(lane.wait_until([] { return false; }, Clock::now() + milliseconds(5)));
    EXPECT_TRUE(driven.armed);
  }
  lane.stop();
}

TEST_F(LaneTest, WhoSleepsIsWokenHoweverLongAnotherDrives) {
  Lane lane(driven, Progress::kApplication, microseconds(0));
  milliseconds limit = milliseconds::max();
  ASSERT_GE(lane.begin_sleep(limit), 0);
  for (int i = 0; i < 5000; ++i) lane.poll_once();
  EXPECT_EQ(driven.disarms, 0u);
  lane.end_sleep();
  lane.poll_once();
  EXPECT_EQ(driven.disarms, 1u);
  lane.stop();
}

// What it took in may have been what was to wake who sleeps.
TEST_F(LaneTest, WhoHasDrivenArmsForWhoSleeps) {
  Lane lane(driven, Progress::kApplication, microseconds(0));
  milliseconds limit = milliseconds::max();
  const int fd = lane.begin_sleep(limit);
  ASSERT_GE(fd, 0);
  const std::uint64_t arms = driven.arms;
  lane.poll_once();
  EXPECT_EQ(driven.arms, arms) << "nothing happened";
  driven.on_round = [] { return true; };
  lane.poll_once();
  EXPECT_EQ(driven.arms, arms + 1);
  EXPECT_FALSE(lane.wait_for([] { return false; }, milliseconds(0)));
  EXPECT_GT(driven.arms, arms + 1);
  EXPECT_FALSE(readable(fd));
  driven.may_sleep = false;
  lane.poll_once();
  EXPECT_TRUE(readable(fd)) << "there is more to do, and who drove has left";
  lane.end_sleep();
  lane.stop();
}

TEST_F(LaneTest, WhoHasDrivenSettlesWhatOthersWaitFor) {
  Lane lane(driven, Progress::kApplication, microseconds(0));
  lane.poll_once();
  EXPECT_EQ(driven.settles, 1u);
  EXPECT_TRUE(lane.wait_for([&] { return driven.rounds > 5; }, kLong));
  EXPECT_EQ(driven.settles, 2u) << "at the end alone";
  lane.stop();
}

// The same with a thread that drives all the while another sleeps, again and again.
TEST_F(LaneTest, NobodySleepsWhileNothingWakes) {
  Lane lane(driven, Progress::kAuto, microseconds(0));
  std::atomic<bool> enough{false};
  ASSERT_TRUE(lane.start().ok());
  std::thread driver([&] {
    while (!enough) lane.poll_once();
  });
  int asleep = 0, unarmed = 0;
  for (const Clock::time_point end = soon(); asleep < 100 && Clock::now() < end; std::this_thread::yield()) {
    milliseconds limit = milliseconds::max();
    if (lane.begin_sleep(limit) < 0) continue;
    ++asleep;
    for (const std::uint64_t before = driven.rounds; driven.rounds < before + 2000;) std::this_thread::yield();
    unarmed += driven.armed ? 0 : 1;
    lane.end_sleep();
  }
  enough = true;
  driver.join();
  lane.stop();
  EXPECT_EQ(asleep, 100);
  EXPECT_EQ(unarmed, 0);
}

TEST_F(LaneTest, ItsOwnThreadDrivesInThreadModeAlone) {
  Lane lane(driven, Progress::kThread, microseconds(0));
  ASSERT_TRUE(lane.start().ok());
  std::thread::id ran;
  std::atomic<bool> done{false};
  lane.submit([&] {
    ran = std::this_thread::get_id();
    done = true;
  });
  EXPECT_FALSE(lane.poll_once());
  ASSERT_TRUE(lane.wait_until([&] { return done.load(); }, soon()));
  EXPECT_NE(ran, std::this_thread::get_id());
  lane.stop();
  bool after = false;
  lane.submit([&] { after = true; });
  EXPECT_TRUE(lane.wait_until([&] { return after; }, soon())) << "once it is stopped, who waits drives";
}

TEST_F(LaneTest, ItsOwnThreadDrivesWhileNobodyWaits) {
  Lane lane(driven, Progress::kAuto, microseconds(0));
  std::atomic<bool> done{false};
  driven.on_round = [&] { return !done.exchange(true); };
  ASSERT_TRUE(lane.start().ok());
  const Clock::time_point end = soon();
  while (!done && Clock::now() < end) std::this_thread::yield();
  EXPECT_TRUE(done);
  lane.stop();
}

TEST_F(LaneTest, ACallEndsAfterItsWork) {
  for (const Progress mode : {Progress::kApplication, Progress::kAuto, Progress::kThread}) {
    Lane lane(driven, mode, microseconds(0));
    ASSERT_TRUE(lane.start().ok());
    int value = 0;
    lane.call([&] { value = 7; });
    EXPECT_EQ(value, 7);
    lane.stop();
  }
}

TEST_F(LaneTest, WhoDoesNotDriveSeesWhatTheDriverDid) {
  Lane lane(driven, Progress::kApplication, microseconds(10));
  std::atomic<int> events{0};
  driven.on_round = [&] { return events < 1000 && ++events <= 1000; };
  std::vector<std::thread> waiters;
  for (int i = 1; i <= 4; ++i) {
    waiters.emplace_back([&, i] { EXPECT_TRUE(lane.wait_until([&, i] { return events >= 250 * i; }, soon())); });
  }
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_EQ(events, 1000);
  lane.stop();
}

// Eight threads wait, each for its own thing, while one drives: nobody is woken for another's.
TEST_F(LaneTest, WhoWaitsIsWokenForItsOwnThingAlone) {
  constexpr std::size_t kWaiters = 8;
  Lane lane(driven, Progress::kThread, microseconds(0));
  ASSERT_TRUE(lane.start().ok());
  std::array<std::atomic<bool>, kWaiters> done{};
  std::array<std::atomic<int>, kWaiters> asked{};
  std::vector<std::thread> waiters;
  for (std::size_t i = 0; i < kWaiters; ++i) {
    waiters.emplace_back([&, i] {
      EXPECT_TRUE(lane.wait_until(
          [&, i] {
            ++asked[i];
            return done[i].load();
          },
          soon()));
    });
  }
  for (std::size_t i = 0; i < kWaiters; ++i) {
    while (asked[i] == 0) std::this_thread::yield();
    lane.submit([&, i] { done[i] = true; });
  }
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_LE(lane.wakes(), kWaiters) << "one each, at the most";
  lane.stop();
}

TEST_F(LaneTest, AnotherTakesOverFromWhoStopsDriving) {
  Lane lane(driven, Progress::kApplication, microseconds(0));
  std::atomic<bool> first{false}, second{false};
  std::thread driver([&] { EXPECT_TRUE(lane.wait_until([&] { return first.load(); }, soon())); });
  while (lane.sleeps() == 0) std::this_thread::yield();
  std::thread other([&] { EXPECT_TRUE(lane.wait_until([&] { return second.load(); }, soon())); });
  lane.submit([&] { first = true; });
  driver.join();
  lane.submit([&] { second = true; });
  other.join();
  lane.stop();
}

TEST_F(LaneTest, WorkOfManyThreadsRunsOnceEach) {
  constexpr int kThreads = 4, kEach = 5000;
  for (const Progress mode : {Progress::kApplication, Progress::kAuto, Progress::kThread}) {
    Lane lane(driven, mode, microseconds(20));
    ASSERT_TRUE(lane.start().ok());
    int ran = 0;  // the driver's alone: a race here is one of the lane
    std::atomic<bool> all{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        for (int n = 0; n < kEach; ++n) {
          lane.submit([&] {
            if (++ran == kThreads * kEach) all = true;
          });
        }
      });
    }
    EXPECT_TRUE(lane.wait_until([&] { return all.load(); }, soon()));
    for (std::thread& thread : threads) thread.join();
    lane.stop();
    EXPECT_EQ(ran, kThreads * kEach);
  }
}

TEST_F(LaneTest, AnIdleLaneSleeps) {
  Lane lane(driven, Progress::kThread, microseconds(0));
  ASSERT_TRUE(lane.start().ok());
  const Clock::time_point end = soon();
  while (lane.sleeps() == 0 && Clock::now() < end) std::this_thread::yield();
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_LE(lane.sleeps(), 3u) << "asleep, not looking again and again";
  EXPECT_NE(lane.sleeps(), 0u);
  lane.stop();
}

/// 'S' where this process' thread of that name sleeps, 'R' where it runs or would; '?' where there is none.
char state_of(const std::string& name) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string line;
    std::getline(std::ifstream(task.path() / "stat"), line);  // "12 (name) S ...", proc(5)
    const std::size_t end = line.rfind(") ");
    if (end != std::string::npos && line.find("(" + name + ") ") != std::string::npos) return line[end + 2];
  }
  return '?';
}

TEST_F(LaneTest, ItsOwnThreadSleepsWhileAnotherHoldsTheTokenAsleep) {
  Lane lane(driven, Progress::kAuto, microseconds(0));
  std::atomic<bool> enough{false};
  std::thread waiter([&] { EXPECT_TRUE(lane.wait_until([&] { return enough.load(); }, soon())); });
  const Clock::time_point end = soon();
  while (lane.sleeps() == 0 && Clock::now() < end) std::this_thread::sleep_for(milliseconds(1));
  ASSERT_TRUE(lane.start().ok());
  int asleep = 0;  // looks in a row
  while (asleep < 20 && Clock::now() < end) {
    asleep = state_of("fairlead-lane") == 'S' ? asleep + 1 : 0;
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(asleep, 20) << "it spins";
  lane.submit([&] { enough = true; });
  waiter.join();
  lane.stop();
}

TEST(DeadlineAfter, DoesNotOverflow) {
  EXPECT_EQ(deadline_after(std::chrono::nanoseconds::max()), Clock::time_point::max());
  const Clock::time_point before = Clock::now();
  EXPECT_GE(deadline_after(milliseconds(5)), before + milliseconds(5));
}

}  // namespace
}  // namespace fairlead::datapath
