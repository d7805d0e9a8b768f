// Peers with several places: which is taken, and where the peer is found again.
#include <thread>

#include "tests/conformance/engine_pair.h"
#include "tests/keys_file.h"
#include "tests/relay.h"

namespace fairlead {
namespace {

class PlacesOfAPeer : public testing::TestWithParam<std::string>, public EnginePair {
 protected:
  void begin(EngineConfig server_config = {}, EngineConfig client_config = {}) {
    for (EngineConfig* config : {&server_config, &client_config}) {
      config->pool_arena_bytes = std::size_t{4} << 20;
      config->connect_timeout = kPatience;
    }
    client_config.transport = GetParam();
    server_config.name = "server";
    create(server_config, client_config);
    if (!client) return;
    for (auto& relay : relays) relay.emplace(server->listen_address());
  }
  void TearDown() override {
    for (auto& relay : relays) relay.reset();
  }
  [[nodiscard]] std::string both() const { return relays[0]->address() + "," + relays[1]->address(); }

  /// What is written arrives, and is told of.
  void move_one(std::uint64_t value) {
    const Result<RemoteMemory> remote = peer.lookup("slot", kPatience);
    ASSERT_TRUE(remote) << remote.error().to_string();
    Memory source = buffer(*client, 4096);
    fill_pattern(source.bytes(), value);
    const Status sent = peer.write(source, *remote, {.notify = value}).wait(kPatience);
    ASSERT_TRUE(sent.ok()) << sent.to_string();
    ASSERT_EQ(next_of(server_peer, Event::Kind::kNotification).value, value);
    EXPECT_EQ(std::memcmp(slot.data(), source.data(), 4096), 0);
  }
  void publish() {
    slot = buffer(*server, 4096);
    ASSERT_TRUE(server->publish("slot", slot, Access::kRemoteReadWrite).ok());
  }
  void wait_for_resumptions(std::uint64_t count) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (peer.stats().resumptions < count && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(peer.stats().resumptions, count) << peer.explain();
  }
  /// At its first place is an engine that does not want us, and has said so.
  void expect_past_one_that_refuses(const std::string& keys, const std::string& principal) {
    EngineConfig server_config, client_config;
    server_config.keys_file = client_config.keys_file = keys;
    client_config.principal = principal;
    begin(server_config, client_config);
    ASSERT_TRUE(client);
    Result<Engine> full = another(keys);
    ASSERT_TRUE(full) << full.error().to_string();
    const Result<Peer> fills = client->connect(full->listen_address());
    ASSERT_TRUE(fills);
    ASSERT_TRUE(Peer(*fills).wait_ready(kPatience).ok());
    connect(full->listen_address() + "," + relays[1]->address());
    ASSERT_FALSE(HasFatalFailure());
    EXPECT_EQ(peer.address(), relays[1]->address());
    EXPECT_EQ(peer.name(), "server");
    EXPECT_EQ(peer.principal(), principal);
    // What the first said last does not keep the session from going on.
    publish();
    relays[1]->hang_up();
    wait_for_resumptions(1);
    move_one(1);
  }
  static Result<Engine> another(const std::string& keys = {}) {
    EngineConfig config;
    config.listen = "127.0.0.1:0";
    config.transport = "tcp";
    config.keys_file = keys;
    config.max_sessions = 1;
    return Engine::create(config);
  }

  std::optional<test::Relay> relays[2];
  Memory slot;
};

TEST_P(PlacesOfAPeer, TheNextIsTakenWhereNobodyListensAtTheFirst) {
  begin();
  ASSERT_TRUE(client);
  relays[0]->leave();
  connect(both());
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_EQ(peer.address(), relays[1]->address());
  publish();
  move_one(1);
}

TEST_P(PlacesOfAPeer, TheNextIsTakenWhereTheFirstRefuses) { expect_past_one_that_refuses("", ""); }

TEST_P(PlacesOfAPeer, TheNextIsTakenWhereTheFirstChallengesAndRefuses) {
  const test::KeysFile keys(test::keys_line("trainer", '1'));
  expect_past_one_that_refuses(keys.path(), "trainer");
}

TEST_P(PlacesOfAPeer, WhoIsGoneAtOneIsFoundAtTheNext) {
  begin();
  ASSERT_TRUE(client);
  connect(both());
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_EQ(peer.address(), relays[0]->address());
  publish();
  move_one(1);
  relays[0]->leave();
  wait_for_resumptions(1);
  EXPECT_EQ(peer.address(), relays[1]->address());
  EXPECT_EQ(peer.stats().recoveries, 0U) << "no path died";
  move_one(2);
  relays[1]->hang_up();
  wait_for_resumptions(2);
  move_one(3);
}

TEST_P(PlacesOfAPeer, AnotherEngineAtOneIsNotThePeer) {
  begin();
  ASSERT_TRUE(client);
  Result<Engine> other = another();
  ASSERT_TRUE(other) << other.error().to_string();
  connect(both());
  ASSERT_FALSE(HasFatalFailure());
  publish();
  relays[0]->lead_to(other->listen_address());
  for (std::uint64_t round = 1; round <= 3; ++round) {
    relays[round == 1 ? 0 : 1]->hang_up();  // where the session is
    wait_for_resumptions(round);
    EXPECT_EQ(peer.address(), relays[1]->address());
    move_one(round);
  }
  EXPECT_FALSE(other->accept(std::chrono::milliseconds(0)));
}

TEST_P(PlacesOfAPeer, WhereAllAreOthersTheSessionEnds) {
  EngineConfig config;
  begin(config);
  ASSERT_TRUE(client);
  Result<Engine> other = another();
  ASSERT_TRUE(other) << other.error().to_string();
  EngineConfig hasty = client->config();
  hasty.peer_timeout = std::chrono::milliseconds(6000);  // a second of which all may refuse
  client.emplace(*Engine::create(hasty));
  connect(both());
  ASSERT_FALSE(HasFatalFailure());
  for (auto& relay : relays) {
    relay->lead_to(other->listen_address());
    relay->hang_up();
  }
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  Event end;
  while (end.kind != Event::Kind::kClosed && std::chrono::steady_clock::now() < deadline) {
    end = peer.next_event(std::chrono::milliseconds(100));
  }
  ASSERT_EQ(end.kind, Event::Kind::kClosed);
  EXPECT_EQ(end.status.code(), Code::kPeerDied);
  EXPECT_NE(end.status.message().find("it is another engine than the session's"), std::string::npos)
      << end.status.message();
}

INSTANTIATE_TEST_SUITE_P(Over, PlacesOfAPeer, testing::Values("tcp", "verbs:soft0"), [](const auto& info) {
  return info.param == "tcp" ? std::string("tcp") : std::string("soft");
});

// Data has paths by way of each: the second goes where the first does not.
TEST(PlacesWithAddresses, PathsGoByWayOfEach) {
  EngineConfig config;
  config.listen = "0.0.0.0:0";
  config.transport = "tcp";
  config.paths = 2;
  config.connect_timeout = kPatience;
  Result<Engine> server = Engine::create(config);
  ASSERT_TRUE(server) << server.error().to_string();
  const std::string port = server->listen_address().substr(server->listen_address().rfind(':'));
  config.listen.clear();
  Result<Engine> client = Engine::create(config);
  ASSERT_TRUE(client) << client.error().to_string();
  Result<Peer> peer = client->connect("127.0.0.1" + port + ",127.0.0.2" + port);
  ASSERT_TRUE(peer) << peer.error().to_string();
  ASSERT_TRUE(peer->wait_ready(kPatience).ok());
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (peer->explain().find("path 2") == std::string::npos && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_NE(peer->explain().find("path 2: tcp"), std::string::npos) << peer->explain();
  EXPECT_NE(peer->explain().find("127.0.0.2"), std::string::npos) << peer->explain();
}

}  // namespace
}  // namespace fairlead
