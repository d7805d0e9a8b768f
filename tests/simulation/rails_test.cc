// Several paths of a flow: what they carry together, and what becomes of it when one of them dies.
#include <gtest/gtest.h>

#include <algorithm>

#include "fairlead/log.h"
#include "two_ends.h"

namespace fairlead::simulation {
namespace {

using datapath::TransferImpl;

Habits rail(const char* name, double bytes_per_us) {
  Habits made = device(name);
  made.bytes_per_us = bytes_per_us;
  made.can.max_outstanding = 64;
  return made;
}

EngineConfig with_paths(std::size_t paths) {
  EngineConfig config;
  config.paths = paths;
  config.chunk_bytes = 32 * 1024;
  config.path_timeout = milliseconds(20);
  return config;
}

class Rails : public testing::Test {
 protected:
  Rails() { set_log_level(LogLevel::kOff); }

  /// Paths of an end that are in use, or about to be.
  static std::vector<FakePath*> paths(TwoEnds& ends, int end) {
    std::vector<FakePath*> found;
    for (std::size_t t = 0; t < ends.hosts[end]->transports().size(); ++t) {
      for (FakePath* path : ends.hosts[end]->fake(t).paths()) found.push_back(path);
    }
    return found;
  }
  static bool meet(TwoEnds& ends, std::size_t count) { return ends.meet() && in_use(ends, count); }
  /// So many paths are, at both ends.
  static bool in_use(TwoEnds& ends, std::size_t count) {
    return ends.run([&] {
      return std::ranges::all_of(ends.session, [&](const auto& session) {
        const std::string explain = session->description().explain;
        std::size_t rails = 0;
        for (std::size_t at = 0; (at = explain.find("; path ", at)) != std::string::npos; ++at) ++rails;
        return rails + 1 == count;
      });
    });
  }
  /// `count` writes or reads of all of the other end's memory, two at a time; how long they took.
  static microseconds carry(TwoEnds& ends, int count, bool read = false) {
    const Clock::time_point begin = ends.world.now();
    for (int i = 0; i < count; ++i) {
      const TransferImpl& t = read ? ends.read(0, 0, TwoEnds::kBytes) : ends.write(0, 0, TwoEnds::kBytes);
      EXPECT_TRUE(ends.run([&] { return ends.posted.size() < 2 || ends.posted[ends.posted.size() - 2]->finished; }));
      if (i + 1 < count) continue;
      EXPECT_TRUE(ends.run([&] { return t.finished.load(); }));
    }
    for (const TransferImpl* t : ends.posted) EXPECT_EQ(t->code, Code::kOk) << t->reason;
    return std::chrono::duration_cast<microseconds>(ends.world.now() - begin);
  }
};

TEST_F(Rails, OneThatIsFourTimesSlowerAddsItsPart) {
  for (const bool read : {false, true}) {
    TwoEnds ends(1, {rail("verbs:fake0", 40), rail("verbs:fake1", 10)}, with_paths(2));
    ASSERT_TRUE(meet(ends, 2));
    carry(ends, 20, read);  // rates are measured
    const microseconds took = carry(ends, 40, read);
    const double sum = 40.0 * TwoEnds::kBytes / 50;
    EXPECT_LT(static_cast<double>(took.count()), sum / 0.9) << (read ? "reads" : "writes");
    EXPECT_NE(ends.session[0]->stats().rail_bytes, 0u);
    EXPECT_TRUE(ends.end());
  }
}

TEST_F(Rails, AsFurtherConnectionsOverTheSameTransport) {
  TwoEnds ends(1, {rail("tcp", 10)}, with_paths(3));
  ASSERT_TRUE(meet(ends, 3));
  carry(ends, 20);
  EXPECT_GE(ends.session[0]->stats().rail_bytes, 20 * TwoEnds::kBytes / 2);
  EXPECT_TRUE(ends.end());
}

TEST_F(Rails, BothEndsUseThem) {
  TwoEnds ends(1, {rail("verbs:fake0", 10), rail("verbs:fake1", 10)}, with_paths(2));
  ASSERT_TRUE(meet(ends, 2));
  const TransferImpl& t = ends.write(1, 0, TwoEnds::kBytes, true);
  ASSERT_TRUE(ends.run([&] { return t.finished.load(); }));
  EXPECT_NE(ends.session[1]->stats().rail_bytes, 0u);
  EXPECT_TRUE(ends.end());
}

// What goes over the others goes on, and what the dead one took is carried by them.
TEST_F(Rails, AnyMayDieSilentlyAndComesBack) {
  for (const std::size_t victim : {0u, 1u, 2u}) {
    TwoEnds ends(1, {rail("verbs:fake0", 10), rail("verbs:fake1", 10), rail("verbs:fake2", 10)}, with_paths(3));
    ASSERT_TRUE(meet(ends, 3));
    std::ranges::fill(ends.memory[0], std::byte{7});
    const TransferImpl& t = ends.write(0, 0, TwoEnds::kBytes, true);
    ends.pass(milliseconds(5), microseconds(10));
    ASSERT_FALSE(t.finished.load());
    FakePath* const cut = ends.hosts[0]->fake(victim).paths().front();
    cut->peer()->cut(std::nullopt);
    cut->cut(std::nullopt);
    ASSERT_TRUE(ends.run([&] { return t.finished.load(); }));
    EXPECT_EQ(t.code, Code::kOk) << t.reason;
    EXPECT_EQ(ends.memory[1], ends.memory[0]);
    EXPECT_EQ(ends.session[0]->stats().replayed_transfers, 1u);
    ASSERT_TRUE(ends.run([&] { return std::ranges::count_if(paths(ends, 0), &FakePath::alive) == 3; }));
    carry(ends, 4);
    EXPECT_EQ(ends.session[0]->state(), PeerState::kReady);
    EXPECT_TRUE(ends.end());
  }
}

// A device of one end works no more, for good: the session goes on with the paths that are left.
TEST_F(Rails, OneWithoutADeviceIsDoneWithout) {
  TwoEnds ends(1, {rail("verbs:fake0", 10), rail("verbs:fake1", 10)}, with_paths(2));
  ASSERT_TRUE(meet(ends, 2));
  ends.hosts[0]->fake(1).unplug();
  FakePath* const cut = ends.hosts[0]->fake(1).paths().front();
  cut->peer()->cut(microseconds(10));
  cut->cut(microseconds(10));
  carry(ends, 4);
  ends.pass(std::chrono::seconds(100), milliseconds(1));
  EXPECT_EQ(ends.session[0]->state(), PeerState::kReady);
  carry(ends, 4);
  EXPECT_TRUE(ends.end());
}

TEST_F(Rails, WithoutFailoverTheDeathOfOneIsTheEnd) {
  EngineConfig config = with_paths(2);
  config.failover = false;
  config.transport = "verbs";
  TwoEnds ends(1, {rail("verbs:fake0", 10), rail("verbs:fake1", 10)}, config);
  ASSERT_TRUE(meet(ends, 2));
  FakePath* const cut = ends.hosts[0]->fake(1).paths().front();
  cut->peer()->cut(microseconds(10));
  cut->cut(microseconds(10));
  ASSERT_TRUE(ends.run([&] { return ends.session[0]->state() == PeerState::kClosed; }));
  EXPECT_NE(ends.session[0]->description().closed.message().find("failover is off"), std::string::npos)
      << ends.session[0]->description().closed.message();
  EXPECT_TRUE(ends.end());
}

TEST_F(Rails, AMessageOverOneEndsTheSession) {
  TwoEnds ends(1, {rail("verbs:fake0", 10), rail("verbs:fake1", 10)}, with_paths(2));
  ASSERT_TRUE(meet(ends, 2));
  datapath::PathMessage message;
  message.type = datapath::MessageType::kNotify;
  message.sequence = 1;
  datapath::PathHeader header;
  encode(message, header);
  ends.hosts[1]->fake(1).paths().front()->slip_message(header);
  ASSERT_TRUE(ends.run([&] { return ends.session[1]->state() == PeerState::kClosed; }));
  const std::string why = ends.session[1]->description().closed.message();
  EXPECT_NE(why.find("path 2, which is for data alone"), std::string::npos) << why;
  EXPECT_TRUE(ends.end());
}

TEST_F(Rails, MoreThanThereMayBeAreNotOpened) {
  using datapath::control::PathOffer;
  for (const auto& [flow, rail_number] : {std::pair(0u, 8u), std::pair(1u, 1u)}) {
    PathOffer offer;
    offer.epoch = 1;
    offer.flow = flow;
    offer.rail = rail_number;
    TwoEnds ends(1, {rail("verbs:fake0", 10)}, with_paths(1));
    ASSERT_TRUE(meet(ends, 1));
    ends.slip_frame(1, offer);
    ASSERT_TRUE(ends.run([&] { return ends.session[1]->state() == PeerState::kClosed; }));
    EXPECT_TRUE(ends.end());
  }
}

}  // namespace
}  // namespace fairlead::simulation
