// Paths that are chosen by what they carry, on a virtual clock.
#include <gtest/gtest.h>

#include <algorithm>

#include "fairlead/log.h"
#include "two_ends.h"

namespace fairlead::simulation {
namespace {

using datapath::TransferImpl;

Habits link(const char* name, double bytes_per_us) {
  Habits made = device(name);
  made.bytes_per_us = bytes_per_us;
  made.can.max_outstanding = 64;
  return made;
}

EngineConfig by_measurement() {
  EngineConfig config;
  config.choice = PathChoice::kMeasured;
  config.path_timeout = milliseconds(20);
  return config;
}

class Measured : public testing::Test {
 protected:
  Measured() { set_log_level(LogLevel::kOff); }

  static std::uint64_t count(TwoEnds& ends, datapath::PathEvent event) {
    std::uint64_t sum = 0;
    for (const auto& state : ends.hosts[0]->pairs.paths) sum += state[static_cast<std::size_t>(event)];
    return sum;
  }
  static std::string transport(TwoEnds& ends) { return ends.session[0]->description().transport; }
  static std::uint64_t measurements(TwoEnds& ends) { return ends.session[0]->stats().paths_measured; }
};

// Its class has no path yet, and which is best depends on where the peer is, which only a connection tells.
TEST_F(Measured, TheFirstCommandMayComeWhileThereIsNoConnection) {
  for (const bool reachable : {true, false}) {
    TwoEnds ends(1, {link("verbs:fake0", 20), link("tcp", 400)}, by_measurement());
    ASSERT_TRUE(ends.meet());
    ends.reachable = reachable;
    ends.line.cut();
    for (int end : {0, 1}) ends.line.reset(end);
    ends.pass(microseconds(20), microseconds(5));
    for (int from : {0, 1}) ends.send(from, 100, TrafficClass::kCommands);
    ends.pass(milliseconds(1), microseconds(5));
    ends.reachable = true;
    ASSERT_TRUE(ends.run(
        [&] { return std::ranges::all_of(ends.posted, [](const TransferImpl* t) { return t->finished.load(); }); }));
    for (const TransferImpl* t : ends.posted) EXPECT_EQ(t->code, Code::kOk) << t->reason;
    EXPECT_EQ(ends.session[0]->stats().resumptions, 1U);
    EXPECT_TRUE(ends.end());
  }
}

TEST_F(Measured, TheOneThatCarriesMoreTakesOverThoughItRanksLower) {
  TwoEnds ends(1, {link("verbs:fake0", 20), link("tcp", 400)}, by_measurement());
  ASSERT_TRUE(ends.meet());
  EXPECT_EQ(transport(ends), "verbs:fake0") << "what is not known yet is not waited for";
  ASSERT_TRUE(ends.run([&] { return transport(ends) == "tcp"; }));
  EXPECT_GE(measurements(ends), 3U) << "the one in use, and the other twice";
  EXPECT_EQ(ends.session[0]->stats().failbacks, 1U);
  EXPECT_EQ(ends.session[0]->stats().recoveries, 0U);
  for (std::uint64_t i = 0; i < 4; ++i) ends.write(i % 2, i * 100'000, 100'000, true);
  ASSERT_TRUE(ends.run(
      [&] { return std::ranges::all_of(ends.posted, [](const TransferImpl* t) { return t->finished.load(); }); }));
  EXPECT_NE(ends.session[0]->description().explain.find("measured"), std::string::npos)
      << ends.session[0]->description().explain;
  // It stays there, however often both are measured again.
  ends.pass(std::chrono::minutes(12), milliseconds(1));
  EXPECT_EQ(transport(ends), "tcp");
  EXPECT_EQ(count(ends, datapath::PathEvent::kBetter), 1U);
  EXPECT_LE(measurements(ends), 20U) << "seldom";
  EXPECT_TRUE(ends.end());
}

TEST_F(Measured, AsGoodAsTheOtherIsNotBetter) {
  TwoEnds ends(2, {link("verbs:fake0", 100), link("tcp", 100)}, by_measurement());
  ASSERT_TRUE(ends.meet());
  ASSERT_TRUE(ends.run([&] { return measurements(ends) >= 2; }));
  ends.pass(std::chrono::seconds(30), milliseconds(1));
  EXPECT_EQ(transport(ends), "verbs:fake0");
  EXPECT_EQ(count(ends, datapath::PathEvent::kBetter), 0U);
  EXPECT_LE(measurements(ends), 12U);
  EXPECT_TRUE(ends.end());
}

TEST_F(Measured, ASlowPathIsNotFencedForBeingMeasured) {
  TwoEnds ends(3, {link("verbs:fake0", 0.02), link("tcp", 0.02)}, by_measurement());
  ASSERT_TRUE(ends.run([&] { return ends.session[0]->state() == PeerState::kReady; }));
  ends.pass(std::chrono::seconds(20), microseconds(500));
  EXPECT_EQ(count(ends, datapath::PathEvent::kFence), 0U);
  EXPECT_EQ(ends.session[0]->stats().recoveries, 0U);
  EXPECT_EQ(ends.session[0]->state(), PeerState::kReady);
  EXPECT_TRUE(ends.end());
}

// The path in use dies, and the one that carries more comes back: then it is known to be better.
TEST_F(Measured, WhatIsKnownToBeBetterIsGoneBackTo) {
  TwoEnds ends(4, {link("verbs:fake0", 400), link("tcp", 20)}, by_measurement());
  ASSERT_TRUE(ends.meet());
  ASSERT_TRUE(ends.run([&] { return measurements(ends) >= 2; }));
  for (int end : {0, 1}) {
    for (FakePath* path : std::vector(ends.hosts[end]->fake(0).paths())) path->cut(microseconds(50));
  }
  ASSERT_TRUE(ends.run([&] { return transport(ends) == "tcp"; }));
  ASSERT_TRUE(ends.run([&] { return transport(ends) == "verbs:fake0"; }));
  EXPECT_EQ(ends.session[0]->stats().failbacks, 1U);
  EXPECT_TRUE(ends.end());
}

}  // namespace
}  // namespace fairlead::simulation
