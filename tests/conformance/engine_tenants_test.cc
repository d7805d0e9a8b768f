// What one principal gets at of another's, over every way across: nothing.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "datapath/engine/handles.h"
#include "datapath/identity/greeting.h"
#include "datapath/identity/principals.h"
#include "datapath/identity/resumption.h"
#include "tests/conformance/engine_pair.h"
#include "tests/datapath/framed.h"
#include "tests/datapath/intruder.h"
#include "tests/keys_file.h"

namespace fairlead {
namespace {

using datapath::RemoteRegionImpl;
namespace control = datapath::control;
using test::KeysFile;
using testing::HasSubstr;

/// A server, and sessions of "trainer" (client, peer) and "store" (thief, as_thief) with it.
class EngineTenants : public testing::TestWithParam<Way>, public EnginePair {
 protected:
  static constexpr std::size_t kBytes = 4096;

  void SetUp() override {
    if (test::over_memif()) GTEST_SKIP() << "a wire with two ends, and this takes several clients";
  }
  void start_both(const std::function<void(EngineConfig&)>& change = [](EngineConfig&) {}) {
    EngineConfig config = config_for(GetParam());
    config.transport = "auto";
    config.keys_file = keys_.path();
    change(config);
    start(config, config_as("trainer"));
    EngineConfig other = config_as("store");
    put_on_wire(other);
    Result<Engine> engine = Engine::create(other);
    ASSERT_TRUE(engine) << engine.error().to_string();
    thief.emplace(std::move(*engine));
    as_thief = *thief->connect(server->listen_address());
    const Status ready = as_thief.wait_ready(kPatience);
    ASSERT_TRUE(ready.ok()) << ready.to_string();
    memory = buffer(*server, kBytes, 0x5a);
  }
  EngineConfig config_as(const std::string& principal) {
    EngineConfig config = config_for(GetParam());
    config.failover = true;  // a queue pair that was refused something is replaced
    config.keys_file = keys_.path();
    config.principal = principal;
    return config;
  }
  /// What another session knows of a region, taken for the thief's own.
  RemoteMemory stolen(const RemoteMemory& from) {
    const RemoteRegionImpl& known = *datapath::region_of(from);
    auto made = std::make_shared<RemoteRegionImpl>();
    made->name = known.name;
    made->id = known.id;
    made->session = datapath::session_of(as_thief)->id();
    made->size = known.size;
    made->access = Access::kRemoteReadWrite | Access::kRemoteAtomic;
    made->keys = known.keys;
    return datapath::make_remote_memory(std::shared_ptr<const RemoteRegionImpl>(made));
  }
  void expect_nothing_of(const RemoteMemory& remote) {
    Memory local = buffer(*thief, kBytes, 0x11);
    const Status written = as_thief.write(local, stolen(remote)).wait(kPatience);
    EXPECT_EQ(written.code(), Code::kProtectionError) << written.to_string();
    const Status read = as_thief.read(local, stolen(remote)).wait(kPatience);
    EXPECT_EQ(read.code(), Code::kProtectionError) << read.to_string();
    EXPECT_EQ(std::ranges::count(local.bytes(), std::byte{0x11}), std::ptrdiff_t{kBytes}) << "nothing was read";
    const Status added = as_thief.fetch_add(stolen(remote).slice(0, 8), 1).wait(kPatience);
    EXPECT_EQ(added.code(), Code::kProtectionError) << added.to_string();
    EXPECT_EQ(std::ranges::count(memory.bytes(), std::byte{0x5a}), std::ptrdiff_t{kBytes}) << "nothing was written";
  }

  KeysFile keys_{test::keys_line("trainer", '1') + test::keys_line("store", '2')};
  std::optional<Engine> thief;
  Peer as_thief;
  Memory memory;  // the server's
};

TEST_P(EngineTenants, KeysAndIdsOfOthersOpenNothing) {
  start_both();
  const Access all = Access::kRemoteReadWrite | Access::kRemoteAtomic;
  ASSERT_TRUE(server->publish("trainer's", memory, all, std::nullopt, {"trainer"}).ok());
  const Result<RemoteMemory> own = peer.lookup("trainer's", kPatience);
  ASSERT_TRUE(own) << own.error().to_string();
  EXPECT_EQ(as_thief.lookup("trainer's", kPatience).status().code(), Code::kNotFound);
  EXPECT_THAT(*as_thief.list("", kPatience), testing::IsEmpty());
  expect_nothing_of(*own);

  // Who it is for reaches it all the while, and what is for both each does by keys of its own.
  Memory back = buffer(*client, kBytes);
  const Status read = peer.read(back, *own).wait(kPatience);
  EXPECT_TRUE(read.ok()) << read.to_string();
  EXPECT_EQ(back.data()[kBytes - 1], std::byte{0x5a});
  Memory shared = buffer(*server, kBytes, 0x33);
  ASSERT_TRUE(server->publish("both's", shared, Access::kRemoteReadWrite, std::nullopt, {"*"}).ok());
  const Result<RemoteMemory> here = peer.lookup("both's", kPatience), there = as_thief.lookup("both's", kPatience);
  ASSERT_TRUE(here && there);
  Memory local = buffer(*thief, kBytes);
  EXPECT_TRUE(as_thief.read(local, *there).wait(kPatience).ok());
  EXPECT_EQ(local.data()[0], std::byte{0x33});
  if (GetParam().one_sided) {
    const auto &one = datapath::region_of(*here)->keys, &other = datapath::region_of(*there)->keys;
    ASSERT_EQ(one.size(), other.size());
    bool any = false;
    for (std::size_t i = 0; i < one.size(); ++i) {
      if (one[i].key == 0) continue;
      any = true;
      EXPECT_NE(one[i].key, other[i].key);
    }
    EXPECT_TRUE(any);
    EXPECT_EQ(as_thief.stats().staged_bytes, 0u) << "not by message";
  }
}

TEST_P(EngineTenants, CapabilitiesAreForWhoTheyWereGivenTo) {
  start_both();
  const Result<std::string> given = server->export_(memory, Access::kRemoteReadWrite, {"trainer"});
  ASSERT_TRUE(given) << given.error().to_string();
  EXPECT_THAT(*peer.list("", kPatience), testing::IsEmpty()) << "it has no name";
  const Result<RemoteMemory> imported = peer.import_(*given, kPatience);
  ASSERT_TRUE(imported) << imported.error().to_string();
  EXPECT_EQ(imported->size(), kBytes);
  EXPECT_EQ(imported->access(), Access::kRemoteReadWrite);
  Memory back = buffer(*client, kBytes);
  ASSERT_TRUE(peer.read(back, *imported).wait(kPatience).ok());
  EXPECT_EQ(back.data()[0], std::byte{0x5a});

  const auto refused = [](const Result<RemoteMemory>& got) {
    EXPECT_EQ(got.status().code(), Code::kPermissionDenied) << got.status().to_string();
    EXPECT_THAT(got.status().message(), HasSubstr("the capability opens nothing here"));
  };
  refused(as_thief.import_(*given, kPatience));
  expect_nothing_of(*imported);
  std::string guessed = *given;
  guessed.back() = guessed.back() == '0' ? '1' : '0';
  refused(peer.import_(guessed, kPatience));
  EXPECT_EQ(peer.import_("anything", kPatience).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(server->unexport("anything").code(), Code::kInvalidArgument);
  EXPECT_EQ(server->unexport(guessed).code(), Code::kNotFound);
  EXPECT_EQ(server->export_(memory, Access::kRemoteRead, {"nobody"}).status().code(), Code::kInvalidArgument);

  ASSERT_TRUE(server->unexport(*given).ok());
  EXPECT_EQ(server->unexport(*given).code(), Code::kNotFound);
  refused(peer.import_(*given, kPatience));
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!imported->withdrawn() && std::chrono::steady_clock::now() < deadline) client->poll();
  EXPECT_TRUE(imported->withdrawn()) << "who imported it is told";
  EXPECT_EQ(peer.read(back, *imported).wait(kPatience).code(), Code::kProtectionError);
}

TEST_P(EngineTenants, WhatIsGivenToNobodyInParticularTakesTheText) {
  start_both();
  const Result<std::string> given = server->export_(memory, Access::kRemoteRead);
  ASSERT_TRUE(given) << given.error().to_string();
  const Result<RemoteMemory> here = peer.import_(*given, kPatience), there = as_thief.import_(*given, kPatience);
  ASSERT_TRUE(here && there);
  Memory back = buffer(*thief, kBytes);
  EXPECT_TRUE(as_thief.read(back, *there).wait(kPatience).ok());
  EXPECT_EQ(as_thief.write(back, *there).wait(kPatience).code(), Code::kPermissionDenied) << "it is to be read";
}

// Who overheard another's greeting, or knows the number of its session, is not taken for it.
TEST_P(EngineTenants, OverheardWordsAndForeignSessionsAreNoUse) {
  start_both();
  const datapath::Principals known = *datapath::Principals::load(keys_.path());
  const std::string nonce(datapath::Greeting::kNonceBytes, 'n');
  const auto challenge_of = [](datapath::Intruder& intruder) {
    const auto is_one = [](const control::Frame& frame) { return std::holds_alternative<control::Challenge>(frame); };
    const auto frame = intruder.answer(is_one);
    return frame ? std::get<control::Challenge>(*frame) : control::Challenge();
  };
  const auto is_refused = [](datapath::Intruder& intruder) {
    const auto is_one = [](const control::Frame& frame) { return std::holds_alternative<control::Refused>(frame); };
    return intruder.answer(is_one).has_value() && intruder.closed_by_engine();
  };

  control::Hello claim = datapath::plain_hello();
  claim.version_max = 6;
  datapath::Greeting trainer(known, "trainer", false);
  trainer.introduce(claim, nonce);
  control::Proof overheard;
  {
    datapath::Intruder first(server->listen_address());
    first.say("FAIRLEAD" + datapath::framed(claim));
    overheard = *trainer.answer(challenge_of(first));
    first.say(datapath::framed(overheard));
    EXPECT_TRUE(
        first.answer([](const control::Frame& frame) { return std::holds_alternative<control::Hello>(frame); }));
  }
  datapath::Intruder again(server->listen_address());
  again.say("FAIRLEAD" + datapath::framed(claim));
  EXPECT_EQ(challenge_of(again).nonce.size(), datapath::Greeting::kNonceBytes);
  again.say(datapath::framed(overheard));
  EXPECT_TRUE(is_refused(again));

  // With the key of another principal, and with its own but not the session's secret.
  for (const char* name : {"store", "trainer"}) {
    datapath::Resumption guess;
    guess.begin(known, name, std::string(datapath::Resumption::kSecretBytes, 's'));
    datapath::Intruder intruder(server->listen_address());
    intruder.say("FAIRLEAD" + datapath::framed(guess.ask(datapath::session_of(server_peer)->id(), 0, nonce)));
    intruder.say(datapath::framed(*guess.answer(challenge_of(intruder))));
    EXPECT_TRUE(is_refused(intruder)) << name;
  }
  EXPECT_EQ(peer.state(), PeerState::kReady);
  EXPECT_EQ(server_peer.stats().resumptions, 0u);
  const std::array<std::byte, 8> word{};
  EXPECT_TRUE(peer.send(word).wait(kPatience).ok()) << "whose session it is goes on";
}

// As many sessions as there are, together they hold no more of the engine than one principal may.
TEST_P(EngineTenants, NoneTakesMoreThanItsPart) {
  constexpr std::size_t kWindow = 16;
  start_both([](EngineConfig& config) {
    config.max_pending_events = kWindow;
    config.max_principal_pending_events = kWindow + 4;
  });
  Peer second = *client->connect(server->listen_address());
  ASSERT_TRUE(second.wait_ready(kPatience).ok()) << "with what is left";
  Peer third = *client->connect(server->listen_address());
  const Status refused = third.wait_ready(kPatience);
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("'trainer'"));
  EXPECT_THAT(refused.message(), HasSubstr("max_principal_pending_events"));

  // Of each the server holds so many until it takes them; the rest waits at the sender.
  std::vector<Transfer> sent;
  const std::array<std::byte, 8> word{};
  for (std::size_t i = 0; i < 2 * kWindow; ++i) {
    for (Peer* from : {&peer, &second}) sent.push_back(from->send(word, i));
  }
  std::size_t taken = 0, of_second = 0;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (taken < sent.size() && std::chrono::steady_clock::now() < deadline) {
    auto [from, event] = server->next_event(std::chrono::seconds(1));
    if (event.kind != Event::Kind::kMessage) continue;
    ++taken;
    of_second += from == server_peer ? 0 : 1;
  }
  EXPECT_EQ(taken, sent.size());
  EXPECT_EQ(of_second, 2 * kWindow) << "also through the smaller window";
  for (Transfer& each : sent) EXPECT_TRUE(each.wait(kPatience).ok());

  // Another principal has all of its own, and what one leaves is free again.
  EXPECT_TRUE(as_thief.send(word).wait(kPatience).ok());
  second.close();
  Event closed;
  while ((closed = second.next_event(kPatience)).kind != Event::Kind::kClosed && closed.kind != Event::Kind::kNone) {
  }
  Status again(Code::kResourceExhausted, "");
  while (!again.ok() && std::chrono::steady_clock::now() < deadline) {
    while (server->next_event().second.kind != Event::Kind::kNone) {  // what came counts until it is taken
    }
    again = client->connect(server->listen_address())->wait_ready(kPatience);
  }
  EXPECT_TRUE(again.ok()) << again.to_string();
}

INSTANTIATE_TEST_SUITE_P(Ways, EngineTenants, testing::ValuesIn(ways()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fairlead
