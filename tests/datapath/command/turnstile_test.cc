#include "datapath/command/turnstile.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace fairlead::datapath::command {
namespace {

using fairlead::command::Sharing;
using std::chrono::milliseconds;
using std::chrono::seconds;

const std::atomic<bool> kNever{false};

TEST(Turnstile, OneAtATimeOfManyThreads) {
  for (const Sharing sharing : {Sharing::kBestEffort, Sharing::kEqual, Sharing::kFixed}) {
    Turnstile turnstile(sharing, seconds(60));
    std::atomic<int> inside{0}, most{0}, turns{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      const Turnstile::Member member = i % 2 == 0 || i == 1 ? turnstile.join(0.2) : Turnstile::Member{1};
      threads.emplace_back([&, member] {
        Turnstile::Turn turn;
        for (int k = 0; k < 50; ++k) {
          turn = turnstile.enter(member, kNever, turn);
          if (inside.fetch_add(1) != 0) most.store(2);
          turns.fetch_add(1);
          inside.fetch_sub(1);
          if (k % 5 == 4) turnstile.leave(std::exchange(turn, {}));
        }
        if (turn.number != 0) turnstile.leave(turn);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(most.load(), 0) << "two had a turn at once";
    EXPECT_EQ(turns.load(), 8 * 50);
    EXPECT_EQ(turnstile.overruns(), 0u);
  }
}

TEST(Turnstile, WhoAlwaysHasMoreIsNotPassedOver) {
  Turnstile turnstile(Sharing::kEqual, seconds(60));
  const Turnstile::Member one = turnstile.join(1), other = turnstile.join(1);
  Turnstile::Turn had = turnstile.enter(other, kNever, {});
  had.began -= std::chrono::hours(1);  // so it had far more of the time than we will
  turnstile.leave(had);
  Turnstile::Turn turn = turnstile.enter(one, kNever, {});
  std::atomic<bool> stopping{false};
  std::atomic<int> others{0};
  std::thread thread([&] {
    const Turnstile::Turn mine = turnstile.enter(other, stopping, {});
    others.fetch_add(mine.number != 0 ? 1 : 0);
    if (mine.number != 0) turnstile.leave(mine);
  });
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(milliseconds(1));  // the other waits
    turn = turnstile.enter(one, kNever, turn);
  }
  EXPECT_EQ(others.load(), 0);
  turnstile.leave(turn);
  thread.join();
  EXPECT_EQ(others.load(), 1) << "it is given what nobody else wants";
}

TEST(Turnstile, ATurnThatMayTakeForEverDoesNotOverrun) {
  Turnstile turnstile(Sharing::kBestEffort, std::chrono::nanoseconds::max());
  const Turnstile::Member one = turnstile.join(1), other = turnstile.join(1);
  const Turnstile::Turn turn = turnstile.enter(one, kNever, {});
  std::atomic<bool> stopping{true};
  EXPECT_EQ(turnstile.enter(other, stopping, {}).number, 0u);
  turnstile.leave(turn);
  EXPECT_NE(turnstile.enter(other, kNever, {}).number, 0u);
  EXPECT_EQ(turnstile.overruns(), 0u);
}

TEST(Turnstile, WhoHangsHoldsNobody) {
  Turnstile turnstile(Sharing::kBestEffort, milliseconds(5));
  const Turnstile::Member hangs = turnstile.join(1), lives = turnstile.join(1);
  const Turnstile::Turn hung = turnstile.enter(hangs, kNever, {});
  const Turnstile::Turn turn = turnstile.enter(lives, kNever, {});
  EXPECT_NE(turn.number, 0u);
  EXPECT_EQ(turnstile.overruns(), 1u);
  turnstile.leave(hung);  // while the other's is under way, which nobody else may join now
  std::atomic<bool> stopping{true};
  EXPECT_EQ(turnstile.enter(hangs, stopping, {}).number, 0u);
  turnstile.leave(turn);
  EXPECT_NE(turnstile.enter(hangs, kNever, {}).number, 0u);
}

TEST(Turnstile, AFixedShareComesBackByItself) {
  Turnstile turnstile(Sharing::kFixed, seconds(60));
  const Turnstile::Member member = turnstile.join(0.5);
  for (int i = 0; i < 3; ++i) {
    const Turnstile::Turn turn = turnstile.enter(member, kNever, {});
    std::this_thread::sleep_for(milliseconds(12));  // more than it has gathered
    turnstile.leave(turn);
  }
}

// Who waits knows until when by its old share.
TEST(Turnstile, AShareThatIsRaisedHoldsAtOnce) {
  Turnstile turnstile(Sharing::kFixed, seconds(60));
  const Turnstile::Member member = turnstile.join(1e-6);
  Turnstile::Turn had = turnstile.enter(member, kNever, {});
  had.began -= milliseconds(100);  // which takes it a day to earn
  turnstile.leave(had);
  std::atomic<bool> stopping{false}, over{false};
  std::uint64_t given = 0;
  std::thread thread([&] {
    given = turnstile.enter(member, stopping, {}).number;
    over.store(true);
  });
  std::this_thread::sleep_for(milliseconds(5));  // it waits
  turnstile.set_share(member, 1);
  const auto deadline = Turnstile::Clock::now() + seconds(20);
  while (!over.load() && Turnstile::Clock::now() < deadline) std::this_thread::sleep_for(milliseconds(1));
  stopping.store(true);
  turnstile.wake();
  thread.join();
  EXPECT_NE(given, 0u);
}

TEST(Turnstile, StoppingEndsTheWait) {
  Turnstile turnstile(Sharing::kEqual, seconds(60));
  const Turnstile::Member one = turnstile.join(1), other = turnstile.join(1);
  const Turnstile::Turn turn = turnstile.enter(one, kNever, {});
  std::atomic<bool> stopping{false};
  std::uint64_t given = 1;
  std::thread thread([&] { given = turnstile.enter(other, stopping, {}).number; });
  stopping.store(true);
  turnstile.wake();
  thread.join();
  EXPECT_EQ(given, 0u);
  turnstile.leave(turn);
  EXPECT_NE(turnstile.enter(one, kNever, {}).number, 0u) << "who no longer waits is not waited for";
}

}  // namespace
}  // namespace fairlead::datapath::command
