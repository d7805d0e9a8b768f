// What a service's peers come to by and by: engines over TCP, and time that the test holds in its hands.
#include "datapath/command/served_peers.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "datapath/command/codec.h"
#include "datapath/command/resume/points.h"
#include "fairlead/engine.h"
#include "fairlead/host_executor.h"
#include "tests/datapath/command/process_program.h"
#include "tests/datapath/command/tcp_engine.h"

namespace fairlead::datapath::command {
namespace {

using fairlead::command::ServiceConfig;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

Clock::time_point the_time;  // of the service
Clock::time_point time_of_test() { return the_time; }

class ServedPeersTest : public testing::Test {
 protected:
  /// A message to that client, or that it is closed; meanwhile the service handles whatever comes to it. Nothing: none
  /// comes.
  Event next(Peer& peer) {
    for (int looks = 0; looks < 10'000;) {
      Event event = peer.next_event();
      if (event.kind == Event::Kind::kMessage || event.kind == Event::Kind::kClosed) return event;
      if (event.kind == Event::Kind::kNone) looks += look() ? 0 : 1;
    }
    return {};
  }
  /// Whether something came.
  bool look() {
    while (server_.accept()) {
    }
    auto [from, event] = server_.next_event(std::chrono::milliseconds(1));
    if (event.kind == Event::Kind::kNone) return false;
    served_.handle(from, std::move(event));
    (void)served_.run_latest();
    return true;
  }
  Peer connect() {
    Result<Peer> peer = client_.connect(server_.listen_address());
    EXPECT_TRUE(peer) << peer.error().to_string();
    return *peer;
  }
  static void say(Peer to, const std::vector<std::byte>& message) {
    (void)to.send(message, kMessageValue, {.traffic = TrafficClass::kCommands});
  }
  /// What is behind its header, of such a message, which is the next.
  Bytes hear(Peer& from, MessageType type) {
    const Event event = next(from);
    heard_ = event.data;
    Bytes body = heard_;
    const auto header = take<MessageHeader>(body);
    EXPECT_TRUE(header && is_message(*header, type));
    return body;
  }
  /// The id of a session that is kept.
  SessionId begin(Peer& peer) {
    say(peer, hello_message({.payload_bytes = 4096}, HelloMore{}, HelloLast{.keep = 1}));
    Bytes body = hear(peer, MessageType::kWelcome).subspan(sizeof(Welcome) + sizeof(WelcomeMore) + sizeof(WelcomeLast));
    const auto kept = take<WelcomeKept>(body);
    EXPECT_TRUE(kept && kept->keep_ms != 0);
    return kept->id;
  }
  void ask_for(Peer& peer, const SessionId& id) {
    auto message = make_message({.type = static_cast<std::uint8_t>(MessageType::kResume)});
    put(message, ResumeBody{id, make_nonce()});
    say(peer, message);
    hear(peer, MessageType::kChallenge);
  }

  static Event hello_event(const std::optional<HelloLast>& last = {}) {
    Event hello;
    hello.kind = Event::Kind::kMessage;
    hello.traffic = TrafficClass::kCommands;
    hello.value = kMessageValue;
    hello.data = hello_message({}, HelloMore{}, last);
    return hello;
  }
  /// Of the next message, which refuses.
  Status refusal(Peer& peer) { return refusal_in(hear(peer, MessageType::kRefused)); }
  /// Whether it comes to hold, without the service.
  template <typename Holds>
  static bool comes_true(Holds holds) {
    for (const auto deadline = Clock::now() + seconds(20); !holds();) {
      if (Clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

  Engine server_ = engine_at("127.0.0.1:0"), client_ = engine_at("");
  ServedPeers served_{{.executors = fairlead::command::host_executors({.memory_bytes = 1 << 20}),
                       .where = ServiceConfig::Where::kInTurn},
                      server_.config().max_message_bytes,
                      &time_of_test};
  std::vector<std::byte> heard_;
};

TEST_F(ServedPeersTest, WhoDoesNotShowThatASessionIsHisGoesInTime) {
  Peer owner = connect(), first = connect(), second = connect();
  const SessionId id = begin(owner);
  ask_for(first, id);
  the_time += seconds(6);
  ask_for(second, id);
  the_time += seconds(6);
  served_.drop_ended();
  EXPECT_EQ(next(first).kind, Event::Kind::kClosed) << "and is told nothing: it may be a client that is slow";
  EXPECT_EQ(second.state(), PeerState::kReady);
  EXPECT_EQ(owner.state(), PeerState::kReady);
  the_time += seconds(6);
  served_.drop_ended();
  EXPECT_EQ(next(second).kind, Event::Kind::kClosed);
  EXPECT_EQ(owner.state(), PeerState::kReady);
  EXPECT_EQ(served_.stats().sessions, 1u);
  EXPECT_EQ(served_.stats().sessions_refused, 0u);
}

TEST_F(ServedPeersTest, OfATenantThatMayHaveNoneAwayNoneIsKept) {
  Tenants tenants({}, nullptr);
  ServiceCounters counters;
  Turnstiles none;
  const ServiceConfig config{.executors = fairlead::command::host_executors({})};
  auto session = std::make_unique<ServedPeer>(connect(), *tenants.admit(""), ServerSession::Terms(), config, counters,
                                              none, nullptr, nullptr, &time_of_test);
  const ServedPeer* const one = session.get();
  LostSessions lost(seconds(60), 0);
  const LostSessions::Owned back = lost.keep(std::move(session), the_time);
  EXPECT_EQ(back.get(), one);
  EXPECT_EQ(lost.size(), 0u);
  EXPECT_EQ(tenants.stats()[0].away, 0u);
}

// Else whose session has just ended would believe that somebody is after it.
TEST_F(ServedPeersTest, WhoseSessionGoesWhileHeShowsThatItIsHisHearsSo) {
  Peer owner = connect(), back = connect();
  const SessionId id = begin(owner);
  ask_for(back, id);
  owner.close();
  while (served_.stats().sessions != 0) {
    look();
    served_.drop_ended();
  }
  say(back, points_message<HeardBody>({}, {}, {}));
  const Status gone = refusal(back);
  EXPECT_EQ(gone.code(), Code::kNotFound) << gone.to_string();
}

TEST_F(ServedPeersTest, WhoShowsThatASessionIsHisWhileTheServiceDrainsHearsSo) {
  Peer owner = connect(), back = connect();
  const SessionId id = begin(owner);
  ask_for(back, id);
  served_.drain();
  say(back, points_message<HeardBody>({}, {}, {}));
  const Status ending = refusal(back);
  EXPECT_EQ(ending.code(), Code::kUnavailable) << ending.to_string();
  EXPECT_EQ(owner.state(), PeerState::kReady);
}

// It may take seconds, and nothing runs at the device.
TEST_F(ServedPeersTest, ToBeginTakesNoTurn) {
  Ran ran;
  ran.devices.all = 1;
  ran.welcome = 1;
  const ServiceConfig config{.program = program_that_ran(ran)};
  Turnstiles turnstiles;
  turnstiles.emplace_back(fairlead::command::Sharing::kEqual, seconds(600));
  Tenants tenants({}, &turnstiles, 1, true);
  ServiceCounters counters;
  const std::atomic<bool> never{false};
  const Turnstile::Turn others = turnstiles[0].enter(turnstiles[0].join(1), never, {});
  ServedPeer session(connect(), *tenants.admit(""), {}, config, counters, turnstiles, nullptr, nullptr, &Clock::now);
  ASSERT_TRUE(session.start_thread().ok());
  session.deliver(hello_event());
  EXPECT_TRUE(comes_true([&] { return counters.begun.load() == 1; }));
  EXPECT_EQ(tenants.stats()[0].service_ns, 0u) << "nor does its tenant pay for it";
  turnstiles[0].leave(others);
}

TEST_F(ServedPeersTest, AProcessThatEndsWhileItsSessionIsIdleEndsTheSession) {
  Ran ran;
  ran.devices.all = 1;
  ran.welcome = 1;
  const std::string program = fmt::format("head -c 1 <&{} >/dev/null; {}", kInheritedSocket,
                                          saying(FrameType::kRan, std::as_bytes(std::span(&ran, 1))));
  const ServiceConfig config{.program = {"/bin/sh", "-c", program}};
  Turnstiles none;
  Tenants tenants({}, nullptr, 1, true);
  ServiceCounters counters;
  ServedPeer session(connect(), *tenants.admit(""), {}, config, counters, none, nullptr, nullptr, &Clock::now);
  ASSERT_TRUE(session.start_thread().ok());
  session.deliver(hello_event());
  EXPECT_TRUE(comes_true([&] { return counters.ended_wrong.load() == 1; }));
  EXPECT_EQ(counters.begun.load(), 1u);
}

// Each is within its own credits, and all of their processes are busy.
TEST_F(ServedPeersTest, WhatWaitsForATenantsSessionsTogetherIsBounded) {
  constexpr std::size_t kMessage = std::size_t{256} << 10, kEach = 6, kSessions = 10;
  constexpr std::uint64_t kMost = 4 * (64 * kMaxRecord + 4096 + (1 << 20));
  static_assert(kEach * (kMessage + 256) < kMost / 4 && kSessions * kEach * kMessage > 2 * kMost);
  Ran ran;
  ran.devices.all = 1;
  ran.welcome = 1;
  const ServiceConfig config{.program = program_that_ran(ran, "sleep 2")};
  Turnstiles none;
  Tenants tenants({}, nullptr, 1, true);
  ServiceCounters counters;
  const std::atomic<std::uint64_t>& queued = tenants.admit("")->account().queued_bytes;
  {
    std::vector<std::unique_ptr<ServedPeer>> sessions;
    for (std::size_t i = 0; i < kSessions; ++i) {
      sessions.push_back(std::make_unique<ServedPeer>(
          connect(), *tenants.admit(""), ServerSession::Terms{.channels = 1, .credits = 64, .payload_credit = 4096},
          config, counters, none, nullptr, nullptr, &Clock::now));
      ASSERT_TRUE(sessions.back()->start_thread().ok());
      sessions.back()->deliver(hello_event());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // most of them run by now
    for (const auto& session : sessions) {
      for (std::size_t i = 0; i < kEach; ++i) {
        Event event;
        event.value = kMessageValue;
        event.data.resize(kMessage);
        session->deliver(std::move(event));
        EXPECT_LE(queued.load(), kMost);
      }
    }
    Status why;
    EXPECT_TRUE(comes_true([&] {
      while (server_.accept()) {
      }
      Bytes body;
      const Event event = server_.next_event(std::chrono::milliseconds(1)).second;
      body = event.data;
      const auto header = take<MessageHeader>(body);
      if (header && is_message(*header, MessageType::kRefused)) why = refusal_in(body);
      return !why.ok();
    }));
    EXPECT_EQ(why.code(), Code::kResourceExhausted) << why.to_string();
    EXPECT_NE(why.message().find("wait for the sessions of its tenant together"), std::string::npos) << why.to_string();
  }
  EXPECT_EQ(queued.load(), 0u);
}

// Whether a session is to be kept is the service's to say, and its client's.
TEST_F(ServedPeersTest, AProcessThatSaysThatItsSessionIsKeptIsNotBelieved) {
  const auto welcome = welcome_message({}, WelcomeMore(), WelcomeLast(), WelcomeKept{.keep_ms = 60'000});
  Ran ran;
  ran.devices.all = 1;
  const ServiceConfig config{.program = program_that_ran(ran, saying(FrameType::kSend, welcome))};
  struct Case {
    std::uint64_t keep_ms = 0;
    std::uint32_t wish = 0;
    bool is_kept = false;
  };
  for (const Case& each : {Case{0, 1}, Case{60'000, 0}, Case{60'000, 1, true}}) {
    Tenants tenants({}, nullptr, 1, true);
    ServiceCounters counters;
    Turnstiles none;
    ServedPeer session(connect(), *tenants.admit(""), {.keep_ms = each.keep_ms}, config, counters, none, nullptr,
                       nullptr, &time_of_test);
    session.deliver(hello_event(HelloLast{.keep = each.wish}));
    EXPECT_EQ(session.turn(), ServedPeer::Left::kNothing);
    EXPECT_EQ(session.is_kept(), each.is_kept);
  }
}

}  // namespace
}  // namespace fairlead::datapath::command
