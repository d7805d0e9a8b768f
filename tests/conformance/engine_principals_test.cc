// Who a peer is, and what it therefore sees, over every way across.
#include <gmock/gmock.h>

#include "tests/conformance/engine_pair.h"
#include "tests/keys_file.h"

namespace fairlead {
namespace {

using test::KeysFile;
using testing::HasSubstr;

class EnginePrincipals : public testing::TestWithParam<Way>, public EnginePair {
 protected:
  void start_as(const std::string& principal, const std::function<void(EngineConfig&)>& change = [](EngineConfig&) {}) {
    EngineConfig config = config_for(GetParam());
    config.transport = "auto";
    config.keys_file = keys_.path();
    change(config);
    start(config, client_config(principal));
  }
  [[nodiscard]] EngineConfig client_config(const std::string& principal) const {
    EngineConfig config = config_for(GetParam());
    if (principal.empty()) return config;
    config.keys_file = keys_.path();
    config.principal = principal;
    return config;
  }
  /// A second client: its engine and its session with the server.
  std::pair<Engine, Peer> another(EngineConfig config) {
    put_on_wire(config);
    Result<Engine> engine = Engine::create(config);
    EXPECT_TRUE(engine) << engine.error().to_string();
    Peer session = *engine->connect(server->listen_address());
    return {std::move(*engine), std::move(session)};
  }
  static std::vector<std::string> names(Peer& session) {
    const Result<std::vector<RemoteMemory>> found = session.list("", kPatience);
    EXPECT_TRUE(found) << found.error().to_string();
    std::vector<std::string> all;
    for (const RemoteMemory& each : *found) all.push_back(each.name());
    return all;
  }

  KeysFile keys_{test::keys_line("trainer", '1') + test::keys_line("store", '2')};
};

TEST_P(EnginePrincipals, SeeAndReachWhatIsPublishedForThem) {
  start_as("trainer", [](EngineConfig& config) { config.allow_anonymous = true; });
  EXPECT_EQ(peer.principal(), "trainer");
  EXPECT_EQ(server_peer.principal(), "trainer");
  Memory memory = buffer(*server, 4096, 0x5a);
  ASSERT_TRUE(server->publish("everybody", memory, Access::kRemoteReadWrite).ok());
  ASSERT_TRUE(server->publish("known", memory, Access::kRemoteReadWrite, std::nullopt, {"*"}).ok());
  ASSERT_TRUE(server->publish("trainer", memory, Access::kRemoteReadWrite, std::nullopt, {"trainer"}).ok());
  EXPECT_THAT(server->publish("typo", memory, Access::kRemoteRead, std::nullopt, {"trainor"}).to_string(),
              HasSubstr("the audience names 'trainor'"));
  EXPECT_THAT(names(peer), testing::ElementsAre("everybody", "known", "trainer"));

  const Result<RemoteMemory> own = peer.lookup("trainer", kPatience);
  ASSERT_TRUE(own) << own.error().to_string();
  Memory back = buffer(*client, 4096);
  ASSERT_TRUE(peer.read(back, *own).wait(kPatience).ok());
  EXPECT_EQ(back.data()[4095], std::byte{0x5a});

  auto [store, as_store] = another(client_config("store"));
  EXPECT_THAT(names(as_store), testing::ElementsAre("everybody", "known"));
  EXPECT_EQ(as_store.principal(), "store");
  const Status hidden = as_store.lookup("trainer", kPatience).status();
  EXPECT_EQ(hidden.code(), Code::kNotFound);
  EXPECT_THAT(hidden.message(), HasSubstr("no region named 'trainer' is published"))
      << "what is for others is not there";
  Memory stolen = *store.allocate(4096);
  expect_failure(as_store.read(stolen, *own), Code::kInvalidArgument, "looked up in another session");

  auto [nobody, as_nobody] = another(client_config(""));
  EXPECT_THAT(names(as_nobody), testing::ElementsAre("everybody"));
  EXPECT_EQ(as_nobody.principal(), "");
}

TEST_P(EnginePrincipals, StrangersAndForgersAreRefused) {
  start_as("trainer");
  {
    auto [engine, session] = another(client_config(""));
    const Status refused = session.wait_ready(kPatience);
    EXPECT_EQ(refused.code(), Code::kPermissionDenied);
    EXPECT_THAT(refused.message(), HasSubstr("takes no anonymous peers"));
  }
  {
    const KeysFile wrong(test::keys_line("trainer", '3'));
    EngineConfig config = client_config("trainer");
    config.keys_file = wrong.path();
    auto [engine, session] = another(config);
    const Status refused = session.wait_ready(kPatience);
    EXPECT_EQ(refused.code(), Code::kPermissionDenied);
    EXPECT_THAT(refused.message(), HasSubstr("'trainer' did not show a key that is known here"));
  }
  EXPECT_EQ(server->stats().handshakes_refused, 2u);
}

TEST_P(EnginePrincipals, AServerThatKnowsNoKeyIsNotTakenForOneThatDoes) {
  EngineConfig config = config_for(GetParam());
  config.transport = "auto";
  start(config, client_config(""));
  auto [engine, session] = another(client_config("trainer"));
  EXPECT_THAT(session.wait_ready(kPatience).message(), HasSubstr("it has no keys file"));
}

TEST_P(EnginePrincipals, OneHasNoMoreSessionsThanItMay) {
  start_as("trainer", [](EngineConfig& config) { config.max_principal_sessions = 1; });
  auto [more, as_trainer] = another(client_config("trainer"));
  const Status refused = as_trainer.wait_ready(kPatience);
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("1 sessions already that 'trainer' began"));
  auto [other, as_store] = another(client_config("store"));
  EXPECT_THAT(names(as_store), testing::IsEmpty()) << "greeted; a wire for two has no path for a third";
}

TEST_P(EnginePrincipals, AreKnownByWhatTheKeysFileSaysNow) {
  if (test::over_memif()) GTEST_SKIP() << "a wire with two ends, and this takes several clients";
  start_as("trainer");
  auto [store, as_store] = another(client_config("store"));
  ASSERT_TRUE(as_store.wait_ready(kPatience).ok());
  Memory memory = buffer(*server, 4096, 0x5a);
  ASSERT_TRUE(server->publish("r", memory, Access::kRemoteReadWrite).ok());
  ASSERT_TRUE(peer.lookup("r", kPatience));

  // Nonsense changes nothing.
  std::ofstream(keys_.path()) << "trainer";
  EXPECT_THAT(server->reload_keys().to_string(), HasSubstr("line 1: 'trainer' needs a key"));
  EXPECT_EQ(peer.state(), PeerState::kReady);

  // One is gone, one stays, one is new.
  std::ofstream(keys_.path()) << test::keys_line("store", '2') + test::keys_line("late", '3');
  ASSERT_TRUE(server->reload_keys().ok());
  Event end;
  while ((end = peer.next_event(kPatience)).kind != Event::Kind::kClosed && end.kind != Event::Kind::kNone) {
  }
  EXPECT_EQ(end.status.code(), Code::kPermissionDenied) << end.status.to_string();
  EXPECT_THAT(end.status.message(), HasSubstr("another key in the keys file now, or none"));
  EXPECT_TRUE(as_store.lookup("r", kPatience));
  auto [newcomer, as_newcomer] = another(client_config("late"));
  EXPECT_TRUE(as_newcomer.wait_ready(kPatience).ok());
  EXPECT_TRUE(server->publish("for the new one", memory, Access::kRemoteRead, std::nullopt, {"late"}).ok());
  EXPECT_EQ(server->publish("for nobody", memory, Access::kRemoteRead, std::nullopt, {"trainer"}).code(),
            Code::kInvalidArgument);
  Peer again = *client->connect(server->listen_address());
  EXPECT_EQ(again.wait_ready(kPatience).code(), Code::kPermissionDenied);

  // The same name with another key is somebody else.
  std::ofstream(keys_.path()) << test::keys_line("store", '4') + test::keys_line("late", '3');
  ASSERT_TRUE(server->reload_keys().ok());
  EXPECT_FALSE(as_store.lookup("r", kPatience));
  EXPECT_EQ(as_newcomer.state(), PeerState::kReady);
  EXPECT_EQ(client->reload_keys().code(), Code::kNotFound) << "our own line is gone";
}

TEST_P(EnginePrincipals, ThereMustHaveBeenAKeysFile) {
  EngineConfig config = config_for(GetParam());
  config.transport = "auto";
  start(config, config_for(GetParam()));
  EXPECT_THAT(server->reload_keys().to_string(), HasSubstr("created without a keys file"));
}

INSTANTIATE_TEST_SUITE_P(Ways, EnginePrincipals, testing::ValuesIn(ways()),
                         [](const auto& info) { return info.param.name; });

TEST(EngineKeys, AreAskedForWhereTheyAreNeeded) {
  const KeysFile keys(test::keys_line("trainer", '1'));
  const auto words = [](const std::function<void(EngineConfig&)>& change) {
    EngineConfig config = config_for({"tcp", "tcp"});
    change(config);
    const Result<Engine> engine = Engine::create(config);
    return engine ? std::string() : engine.error().to_string();
  };
  EXPECT_THAT(words([](EngineConfig& c) { c.principal = "trainer"; }), HasSubstr("there is no keys_file"));
  EXPECT_THAT(words([](EngineConfig& c) { c.allow_anonymous = true; }), HasSubstr("without a keys_file"));
  EXPECT_THAT(words([](EngineConfig& c) { c.keys_file = "/nowhere/keys"; }), HasSubstr("keys file /nowhere/keys: "));
  EXPECT_THAT(words([&](EngineConfig& c) {
                c.keys_file = keys.path();
                c.principal = "store";
              }),
              HasSubstr("has no line for 'store'"));
}

}  // namespace
}  // namespace fairlead
