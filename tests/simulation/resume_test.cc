// Control connections that break at any moment of what is said over them.
#include <gtest/gtest.h>

#include <algorithm>

#include "fairlead/log.h"
#include "two_ends.h"

namespace fairlead::simulation {
namespace {

using datapath::SessionEvent;
using datapath::TransferImpl;

class Resuming : public testing::Test {
 protected:
  Resuming() { set_log_level(LogLevel::kOff); }

  /// The connection breaks, and each end is told that is to be.
  static void hang_up(TwoEnds& ends, bool active_hears, bool passive_hears) {
    ends.line.cut();
    if (active_hears) ends.line.reset(0);
    if (passive_hears) ends.line.reset(1);
  }
  static bool all_ok(const TwoEnds& ends) {
    return std::ranges::all_of(ends.posted,
                               [](const TransferImpl* t) { return t->finished.load() && t->code == Code::kOk; });
  }
  static std::uint64_t resumptions(TwoEnds& ends) { return ends.session[0]->stats().resumptions; }
};

// Whatever is under way of a fence, a new path or a look-up when the connection breaks is taken up again.
TEST_F(Resuming, AtAnyMomentOfARecovery) {
  for (int after_us = 0; after_us < 1500; after_us += 15) {
    for (const auto& [active_hears, passive_hears] : {std::pair(true, true), {true, false}, {false, true}}) {
      TwoEnds ends(static_cast<std::uint64_t>(after_us) + 1, {device("verbs:fake0"), device("verbs:fake1")});
      ASSERT_TRUE(ends.meet());
      for (std::uint64_t i = 0; i < 8; ++i) ends.write(i % 2, i * 1000, 1000, true);
      for (int end : {0, 1}) ends.path(end)->cut(microseconds(50));
      ends.pass(microseconds(after_us), microseconds(5));
      hang_up(ends, active_hears, passive_hears);
      const auto lookup = ends.session[1]->start_lookup("r", false);
      ASSERT_TRUE(ends.run([&] { return all_ok(ends) && lookup->finished.load(); })) << after_us;
      EXPECT_EQ(lookup->regions.size(), 1u) << after_us;
      ASSERT_TRUE(ends.run([&] { return resumptions(ends) == 1; })) << after_us;
      EXPECT_TRUE(ends.end()) << after_us;
      EXPECT_EQ(ends.session[0]->description().closed.to_string(), Status().to_string());
    }
  }
}

// The same from the first word on: before the greeting is over there is nothing to go on with.
TEST_F(Resuming, AtAnyMomentOfTheBeginning) {
  std::uint64_t went_on = 0, ended = 0;
  for (int after_us = 0; after_us < 1500; after_us += 15) {
    TwoEnds ends(static_cast<std::uint64_t>(after_us) + 1, {device("verbs:fake0")});
    ends.pass(microseconds(after_us), microseconds(5));
    hang_up(ends, true, true);
    ASSERT_TRUE(ends.run([&] {
      return ends.session[0]->finished() ||
             (ends.session[0]->state() == PeerState::kReady && ends.session[1]->state() == PeerState::kReady);
    })) << after_us;
    ++(ends.session[0]->finished() ? ended : went_on);
    EXPECT_TRUE(ends.end()) << after_us;
  }
  EXPECT_NE(went_on, 0u);
  EXPECT_NE(ended, 0u);
}

// It breaks again while it is made anew, time after time.
TEST_F(Resuming, AgainAndAgain) {
  TwoEnds ends(5, {device("verbs:fake0"), device("verbs:fake1")});
  ASSERT_TRUE(ends.meet());
  for (int i = 0; i < 300; ++i) {
    ends.write(i % 2, static_cast<std::uint64_t>(i) * 1000, 1000, true);
    hang_up(ends, i % 3 != 0, i % 3 != 1);
    ends.pass(microseconds(40 * i % 1700), microseconds(10));
  }
  ASSERT_TRUE(ends.run([&] { return all_ok(ends); }));
  EXPECT_GT(resumptions(ends), 20u);
  EXPECT_TRUE(ends.end());
}

// An outage of 25 seconds of everything, with a peer_timeout of 30: nobody is told of anything.
TEST_F(Resuming, AfterAnOutageThatIsShorterThanPeerTimeout) {
  TwoEnds ends(9, {device("verbs:fake0"), device("verbs:fake1")});
  ASSERT_TRUE(ends.meet());
  ends.line.cut();
  ends.reachable = false;
  for (std::uint64_t i = 0; i < 20; ++i) ends.write(i % 2, i * 1000, 1000, true);
  for (int end : {0, 1}) ends.path(end)->cut(milliseconds(900));
  ends.pass(std::chrono::seconds(25), microseconds(1000));
  EXPECT_FALSE(all_ok(ends));
  ends.reachable = true;
  const Clock::time_point back = ends.world.now();
  ASSERT_TRUE(ends.run([&] { return all_ok(ends); }));
  EXPECT_LT(ends.world.now() - back, milliseconds(1000));
  EXPECT_TRUE(ends.end());
}

// It moves to its other place, at any moment of a recovery, and back.
TEST_F(Resuming, AtAnotherPlace) {
  for (int after_us = 0; after_us < 1500; after_us += 50) {
    const std::vector<Habits> devices{device("verbs:fake0"), device("verbs:fake1")};
    TwoEnds ends(static_cast<std::uint64_t>(after_us) + 1, devices, devices, {},
                 {{"10.9.0.2", 7400, 0}, {"10.0.0.2", 7400, 1}});
    ends.is_at = "10.0.0.2";
    ASSERT_TRUE(ends.meet());
    std::uint64_t moves = 0;
    for (const char* next : {"10.9.0.2", "10.0.0.2"}) {
      for (std::uint64_t i = 0; i < 8; ++i) ends.write(i % 2, i * 1000, 1000, true);
      for (int end : {0, 1}) {
        if (FakePath* path = ends.path(end)) path->cut(microseconds(50));
      }
      ends.pass(microseconds(after_us), microseconds(5));
      ends.is_at = next;
      hang_up(ends, true, after_us % 100 == 0);
      ++moves;
      ASSERT_TRUE(ends.run([&] { return all_ok(ends) && resumptions(ends) == moves; })) << after_us;
      EXPECT_EQ(ends.session[0]->description().address, std::string(next) + ":7400");
    }
    EXPECT_TRUE(ends.end()) << after_us;
  }
}

// What is said while nobody hears it is kept, but not without end.
TEST_F(Resuming, WhoDoesNotComeBackIsNotRememberedForLong) {
  EngineConfig config;
  config.peer_timeout = milliseconds(2000);
  TwoEnds ends(11, {device("verbs:fake0")}, config);
  ASSERT_TRUE(ends.meet());
  ends.reachable = false;
  hang_up(ends, true, true);
  ends.path(0)->cut(milliseconds(1));
  ends.path(1)->cut(milliseconds(1));
  const Clock::time_point begin = ends.world.now();
  ASSERT_TRUE(ends.run([&] { return ends.session[0]->finished() && ends.session[1]->finished(); }));
  EXPECT_LT(ends.world.now() - begin, milliseconds(2600));
  for (const auto& session : ends.session) EXPECT_EQ(session->description().closed.code(), Code::kPeerDied);
}

}  // namespace
}  // namespace fairlead::simulation
