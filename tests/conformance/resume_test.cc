// Control connections that break under way: data flows on, and the session goes on over another.
#include <thread>

#include "tests/conformance/engine_pair.h"
#include "tests/keys_file.h"
#include "tests/relay.h"

namespace fairlead {
namespace {

using Kind = Event::Kind;

class Resume : public testing::TestWithParam<std::string>, public EnginePair {
 protected:
  /// Both ends of a session whose control connection leads through the relay.
  void begin(EngineConfig server_config = {}, EngineConfig client_config = {}) {
    for (EngineConfig* config : {&server_config, &client_config}) {
      config->pool_arena_bytes = std::size_t{4} << 20;
      config->verbs.packet_io = "udp";
    }
    client_config.transport = GetParam();
    server_config.name = "server";
    create(server_config, client_config);
    if (!client) return;
    relay.emplace(server->listen_address());
    connect(relay->address());
  }
  void TearDown() override { relay.reset(); }

  static void wait_for(const std::function<bool()>& that, const char* what) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!that() && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(that()) << what;
  }
  /// Breaks the connection, and waits until both ends have another.
  void break_once() {
    const std::uint64_t before[2] = {peer.stats().resumptions, server_peer.stats().resumptions};
    relay->hang_up();
    wait_for([&] { return peer.stats().resumptions > before[0] && server_peer.stats().resumptions > before[1]; },
             "the control connection does not come back");
  }
  static Event closing_of(Peer& of) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    Event event;
    while (event.kind != Kind::kClosed && std::chrono::steady_clock::now() < deadline) {
      event = of.next_event(std::chrono::milliseconds(100));
    }
    EXPECT_EQ(event.kind, Kind::kClosed);
    return event;
  }

  std::optional<test::Relay> relay;
};

TEST_P(Resume, DataFlowsOnAndNothingIsLost) {
  begin();
  if (HasFatalFailure()) return;
  constexpr std::uint64_t kBytes = 16384, kRounds = 20;
  auto [memory, remote] = target("slot", kBytes);
  Memory source = buffer(*client, kBytes);
  std::uint64_t value = 0;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    relay->hang_up();
    for (int i = 0; i < 20; ++i, ++value) {
      fill_pattern(source.bytes(), value);
      ASSERT_TRUE(peer.write(source, remote, {.notify = value}).wait(kPatience).ok());
      const Event event = next_of(server_peer, Kind::kNotification);
      ASSERT_EQ(event.value, value);
      ASSERT_EQ(std::memcmp(memory.data(), source.data(), kBytes), 0);
    }
    break_once();
  }
  EXPECT_GE(peer.stats().resumptions, kRounds);
  EXPECT_EQ(peer.stats().recoveries, 0U) << "no path died";
  EXPECT_EQ(peer.state(), PeerState::kReady);
  EXPECT_EQ(client->stats().total.resumptions, peer.stats().resumptions);
}

// The connection that takes the place of the one that broke may be accepted in another lane than the session's.
TEST_P(Resume, ASessionStaysInItsLane) {
  EngineConfig lanes;
  lanes.lanes = 3;
  begin(lanes, lanes);
  if (HasFatalFailure()) return;
  auto [memory, remote] = target("slot", 4096);
  Memory source = buffer(*client, 4096);
  const std::size_t lane[2] = {peer.lane(), server_peer.lane()};
  for (std::uint64_t round = 0; round < 7; ++round) {
    break_once();
    ASSERT_TRUE(peer.write(source, remote, {.notify = round}).wait(kPatience).ok());
    ASSERT_EQ(next_of(server_peer, Kind::kNotification).value, round);
    ASSERT_TRUE(peer.lookup("slot", kPatience));
    EXPECT_EQ(peer.lane(), lane[0]);
    EXPECT_EQ(server_peer.lane(), lane[1]);
  }
  EXPECT_EQ(server->peers().size(), 1U);
}

TEST_P(Resume, WhatWasSaidMeanwhileIsHeard) {
  begin();
  if (HasFatalFailure()) return;
  for (int round = 0; round < 30; ++round) {
    const std::string name = "region/" + std::to_string(round);
    relay->hang_up();
    Memory memory = buffer(*server, 4096);
    ASSERT_TRUE(server->publish(name, memory, Access::kRemoteRead).ok());
    const Result<RemoteMemory> remote = peer.lookup(name, kPatience);
    ASSERT_TRUE(remote) << remote.error().to_string();
    if (round % 2 == 0) relay->hang_up();
    ASSERT_TRUE(server->unpublish(name).ok());
    wait_for([&] { return remote->withdrawn(); }, "nobody says that the region was withdrawn");
  }
}

TEST_P(Resume, ASilentConnectionIsReplaced) {
  EngineConfig config;
  config.peer_timeout = std::chrono::milliseconds(2400);  // 200 ms for an answer, and as long again
  begin(config, config);
  if (HasFatalFailure()) return;
  for (int round = 0; round < 2; ++round) {
    relay->fall_silent();
    const Result<RemoteMemory> none = peer.lookup("no such region", kPatience);
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code(), Code::kNotFound) << none.error().to_string();
  }
  EXPECT_GE(peer.stats().resumptions, 2U);
}

TEST_P(Resume, WhoIsGoneIsToldAtOnceAndWaitedForNoLongerThanPeerTimeout) {
  EngineConfig config;
  config.peer_timeout = std::chrono::milliseconds(2000);
  begin(config, config);
  if (HasFatalFailure()) return;
  relay->leave();
  const Event here = closing_of(peer);
  EXPECT_EQ(here.status.code(), Code::kPeerDied);
  EXPECT_NE(here.status.message().find("connecting again: Connection refused"), std::string::npos)
      << here.status.message();
  const Event there = closing_of(server_peer);
  EXPECT_EQ(there.status.code(), Code::kPeerDied);
  EXPECT_NE(there.status.message().find("did not come back within 2000 ms (peer_timeout)"), std::string::npos)
      << there.status.message();
}

TEST_P(Resume, AnotherEngineAtTheAddressIsNotThePeer) {
  begin();
  if (HasFatalFailure()) return;
  EngineConfig config;
  config.listen = "127.0.0.1:0";
  config.transport = "tcp";
  Result<Engine> other = Engine::create(config);
  ASSERT_TRUE(other) << other.error().to_string();
  relay->lead_to(other->listen_address());
  relay->hang_up();
  const Event end = closing_of(peer);
  EXPECT_EQ(end.status.code(), Code::kPeerDied);
  EXPECT_NE(end.status.message().find("the session has ended here"), std::string::npos) << end.status.message();
  EXPECT_FALSE(other->accept(std::chrono::milliseconds(0)));
}

TEST_P(Resume, AClosedSessionSaysSoOverTheNextConnection) {
  begin();
  if (HasFatalFailure()) return;
  relay->hang_up();
  peer.close();
  const Event there = closing_of(server_peer);
  EXPECT_TRUE(there.status.ok()) << there.status.to_string();
}

TEST_P(Resume, APrincipalsSessionGoesOnAsThePrincipals) {
  const test::KeysFile keys("alice " + std::string(64, 'a') + "\n");
  EngineConfig config;
  config.keys_file = keys.path();
  EngineConfig client_config = config;
  client_config.principal = "alice";
  begin(config, client_config);
  if (HasFatalFailure()) return;
  for (int round = 0; round < 3; ++round) break_once();
  EXPECT_EQ(server_peer.principal(), "alice");
  EXPECT_EQ(peer.state(), PeerState::kReady);
}

TEST_P(Resume, WhereNoneAreKeptTheSessionEndsAtOnce) {
  EngineConfig config;
  config.max_cut_sessions = 0;
  begin(config);
  if (HasFatalFailure()) return;
  relay->hang_up();
  const Event there = closing_of(server_peer);
  EXPECT_EQ(there.status.code(), Code::kPeerDied);
  EXPECT_NE(there.status.message().find("max_cut_sessions"), std::string::npos) << there.status.message();
  EXPECT_EQ(closing_of(peer).status.code(), Code::kPeerDied);
}

INSTANTIATE_TEST_SUITE_P(Over, Resume, testing::Values("tcp", "verbs:soft0"), [](const auto& info) {
  return info.param == "tcp" ? std::string("tcp") : std::string("soft");
});

}  // namespace
}  // namespace fairlead
