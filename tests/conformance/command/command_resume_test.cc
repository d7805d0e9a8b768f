// Sessions that outlive their engine's session: what is under way when it is lost goes on over another, once; and
// nobody gets at a session that is not his.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <deque>
#include <fstream>
#include <random>

#include "datapath/command/resume/points.h"
#include "tests/conformance/command/command_tenants.h"
#include "tests/conformance/command/stranger.h"
#include "tests/relay.h"

namespace fairlead {
namespace {

using command::Channel;
using command::Handle;
using command::pack;
using command::Pointer;
using command::Session;
using datapath::command::HeardBody;
using datapath::command::KeptBody;
using datapath::command::MessageType;
using datapath::command::SessionKey;
using std::chrono::milliseconds;
using testing::AnyOf;
using testing::HasSubstr;

constexpr milliseconds kSought{60'000};

/// The relay has the control connection alone, so it is much the same over every transport.
std::vector<CommandWay> resume_ways() {
  std::vector<CommandWay> all = command_ways();
  for (const CommandWay& cuda : cuda_command_ways()) all.push_back(cuda);
  std::erase_if(all, [](const CommandWay& each) {
    const bool in_turn = each.where == command::ServiceConfig::Where::kInTurn;
    return each.way.name != "tcp" && (each.way.name != "soft" || each.isolated || each.cuda || in_turn);
  });
  return all;
}
/// For what no device has to do with.
std::vector<CommandWay> plain_ways() {
  std::vector<CommandWay> all = resume_ways();
  std::erase_if(all, [](const CommandWay& each) { return each.cuda || each.way.name != "tcp"; });
  return all;
}

class CommandResume : public CommandTenants {
 protected:
  /// A service that loses whose control connection breaks, behind a relay that breaks it.
  void serve_behind_relay(command::ServiceConfig config = {}) {
    change_server = [](EngineConfig& engine) { engine.max_cut_sessions = 0; };
    start(std::move(config), device_bytes, false);
    relay.emplace(service->listen_address());
  }
  Session connect_kept() {
    Session made = connect(relay->address(), {.resume_within = kSought});
    EXPECT_GT(made.limits().kept_for.count(), 0);
    return made;
  }
  void TearDown() override {
    kernels.signals().open.store(true);
    session.reset();
    relay.reset();
    CommandTenants::TearDown();
  }
  /// Its one client's connection is gone, and the service knows; that may be back by then.
  void lose() {
    EXPECT_TRUE(comes_true([&] { return service->stats().away == 0; })) << "it is not back from the time before";
    const auto lost = [this] { return service->stats().away + service->stats().resumed; };
    const std::uint64_t before = lost();
    relay->hang_up();
    EXPECT_TRUE(comes_true([&] { return lost() > before; }));
  }

  std::optional<test::Relay> relay;
};

// ---- a client that comes back --------------------------------------------------------------------------------------

TEST_P(CommandResume, WhatIsUnderWayGoesOnOverAnotherConnection) {
  serve_behind_relay();
  session.emplace(connect_kept());
  std::mt19937 random(3);
  Channel one = open(*session), other = must(session->open_channel({.priority = -2}));
  constexpr std::size_t kFloats = 20'000;
  const Handle x = session->new_handle(), y = session->new_handle();
  const Handle add = session->new_handle();
  std::vector<float> values(kFloats, 1);
  must(one.allocate(x, kFloats * sizeof(float)));
  must(one.allocate(y, kFloats * sizeof(float)));
  must(one.load(add, "vector_add"));
  must(one.copy_in(y, 0, std::as_bytes(std::span(values))));
  const bool is_cuda = GetParam().cuda;
  float due = 0;
  for (int round = 0; round < 12; ++round) {
    const std::size_t at = random() % 20;
    std::vector<std::vector<float>> seen(20);
    for (std::size_t i = 0; i < seen.size(); ++i) {
      if (i == at) {
        if (random() % 2 == 0) one.flush();
        relay->hang_up();
      }
      seen[i].resize(i % 2 == 0 ? kFloats : 50);
      if (is_cuda) {  // a copy is the same, done twice; a sum is not, and the double has no such kernel
        due = static_cast<float>(round * 20 + static_cast<int>(i));
        std::ranges::fill(values, due);
        must(one.copy_in(x, 0, std::as_bytes(std::span(values))));
      } else {  // x += 1
        due += 1;
        must(one.launch({{add}}, pack(Pointer{x}, Pointer{y}, Pointer{x}, static_cast<std::uint32_t>(kFloats))));
      }
      must(one.copy_out(std::as_writable_bytes(std::span(seen[i])), x, 0));
      must(other.fence(must(one.record())));
      must(one.fence(must(other.record())));
    }
    expect_fine(one);
    expect_fine(other);
    for (std::size_t i = 0; i < seen.size(); ++i) {
      const float is = due - static_cast<float>(seen.size() - 1 - i);
      ASSERT_EQ(std::ranges::count(seen[i], is), static_cast<std::ptrdiff_t>(seen[i].size())) << round << ", " << i;
    }
  }
  EXPECT_GT(session->resumptions(), 0u);
  EXPECT_EQ(service->stats().resumed, session->resumptions());
  EXPECT_EQ(service->stats().sessions_begun, 1u);
  EXPECT_EQ(service->stats().sessions, 1u);
  EXPECT_EQ(service->stats().sessions_ended_wrong, 0u);
  EXPECT_TRUE(session->status().ok());
}

TEST_P(CommandResume, WhatFailsWhileNobodyHearsIsToldAfterwards) {
  serve_behind_relay();
  session.emplace(connect_kept());
  Channel channel = open(*session);
  must(channel.allocate({1}, 64));
  expect_fine(channel);
  for (int round = 1; round <= 3; ++round) {
    const std::uint64_t failing = must(channel.release({99}));
    must(channel.fill({1}, 0, 64, 7));
    channel.flush();
    lose();
    const command::Failure failure = failure_of(channel);
    EXPECT_EQ(failure.sequence, failing);
    EXPECT_EQ(failure.scope, command::Scope::kCommand);
    EXPECT_EQ(failure.result, command::kInvalidHandle);
    lose();  // what it heard of is not said again
    std::array<std::byte, 64> bytes{};
    bytes.fill(std::byte{1});
    must(channel.copy_out(bytes, {1}, 0));
    expect_fine(channel);
    EXPECT_EQ(bytes[63], std::byte{0}) << "the command behind the failure did not run";
  }
  EXPECT_GE(session->resumptions(), 3u);
}

// The application computes, and calls nothing of ours.
TEST_P(CommandResume, ASessionThatNobodyWaitsForIsGoneOnWith) {
  serve_behind_relay({.keep_away = milliseconds(20'000)});
  session.emplace(connect_kept());
  Channel channel = open(*session);
  must(channel.allocate({1}, 64));
  expect_fine(channel);
  lose();
  EXPECT_TRUE(comes_true([&] { return service->stats().resumed == 1 && service->stats().away == 0; }));
  expect_fine(channel);
}

TEST_P(CommandResume, OneThatDoesNotWishItEndsWithItsConnection) {
  serve_behind_relay();
  session.emplace(connect(relay->address()));
  EXPECT_EQ(session->limits().kept_for.count(), 0);
  Channel channel = open(*session);
  must(channel.allocate({1}, 64));
  expect_fine(channel);
  relay->hang_up();
  EXPECT_TRUE(comes_true([&] { return !session->status().ok(); }));
  EXPECT_FALSE(channel.fill({1}, 0, 64, 1));
  EXPECT_TRUE(comes_true([&] { return service->stats().sessions == 0; }));
}

// ---- one that comes too late, or not at all ------------------------------------------------------------------------

/// Of a session that was lost, and what it is told when it comes back.
class CommandGone : public CommandResume {
 protected:
  void begin(command::ServiceConfig config = {}) {
    serve_behind_relay(std::move(config));
    Stranger client(*this->client, relay->address());
    key = client.begin();
    client.give_marks(1, 3);
    client.await(3);
    relay->hang_up();
    ASSERT_TRUE(comes_true([&] { return service->stats().sessions == 0 || service->stats().away == 1; }));
  }
  void expect_gone(std::string_view why) {
    ASSERT_TRUE(comes_true([&] { return service->stats().sessions == 0; })) << "all of it is freed";
    Stranger late(*client, relay->address());
    const Status refused = late.ask(key);
    EXPECT_THAT(refused.message(), HasSubstr(why));
    EXPECT_EQ(late.fate().code(), Code::kOk) << "once";
    EXPECT_EQ(service->stats().resumed, 0u);
  }
  SessionKey key;
};

TEST_P(CommandGone, AfterItsTime) {
  begin({.keep_away = milliseconds(1)});
  expect_gone("its client was away for longer than it is kept, 1 ms; begin another");
}
TEST_P(CommandGone, WhenTheServiceDrains) {
  begin();
  EXPECT_EQ(service->stats().away, 1u);
  service->drain();
  expect_gone("it is ending, and nobody goes on with a session");
}
TEST_P(CommandGone, WhenItsTenantIs) {
  begin();
  ASSERT_TRUE(service->set_tenants({{.name = "somebody"}}).ok());
  expect_gone("none of the service's tenants");
}
TEST_P(CommandGone, WhenItsKeyIs) {
  change_server = [this](EngineConfig& engine) {
    engine.max_cut_sessions = 0;
    engine.keys_file = keys_.path();
  };
  start({}, device_bytes, false);
  relay.emplace(service->listen_address());
  Result<Session> trainer =
      Session::connect(engine_of("trainer"), relay->address(), patient({.resume_within = kSought}));
  ASSERT_TRUE(trainer) << trainer.error().to_string();
  Channel channel = open(*trainer);
  must(channel.allocate({1}, 64));
  expect_fine(channel);
  relay->lead_to("127.0.0.1:1");  // where nobody is
  relay->hang_up();
  ASSERT_TRUE(comes_true([&] { return service->stats().away == 1; }));
  std::ofstream(keys_.path()) << test::keys_line("store", '2');
  ASSERT_TRUE(service->engine().reload_keys().ok());
  EXPECT_TRUE(comes_true([&] { return service->stats().sessions == 0; })) << "all of it is freed";
}
TEST_P(CommandGone, WhereNoneIsKept) {
  serve_behind_relay({.most_away = 0});
  session.emplace(connect(relay->address(), {.resume_within = kSought}));
  EXPECT_EQ(session->limits().kept_for.count(), 0);
  relay->hang_up();
  expect_gone("it has no such session of this client's");
}
// Nothing of the one before is there, and its clients hear so.
TEST_P(CommandGone, WhenTheServiceIsAnother) {
  serve_behind_relay();
  session.emplace(connect_kept());
  Channel channel = open(*session);
  must(channel.allocate({1}, 64));
  expect_fine(channel);
  EngineConfig config;
  config.transport = "tcp";
  config.listen = "127.0.0.1:0";
  Result<Engine> engine = Engine::create(config);
  ASSERT_TRUE(engine);
  Result<command::Service> other =
      command::Service::start(*std::move(engine), {.executors = kernels.executors(1 << 20)});
  ASSERT_TRUE(other);
  relay->lead_to(other->listen_address());
  relay->hang_up();
  EXPECT_TRUE(comes_true([&] { return !session->status().ok(); }));
  const Status end = session->status();
  EXPECT_EQ(end.code(), Code::kNotFound) << end.to_string();
  EXPECT_THAT(end.message(), HasSubstr("the service was started anew since; begin another"));
  EXPECT_FALSE(channel.fill({1}, 0, 64, 1)) << "it has ended";
}
// Before the proof a refusal for want of room is about who asks just now; behind it, about the session.
TEST_P(CommandGone, WhenThereIsNoRoomForItButNotWhereItIsToTryAgain) {
  serve_behind_relay();
  for (const bool after_proof : {false, true}) {
    BusyService busy;
    session.emplace(connect_kept());
    relay->lead_to(busy.engine.listen_address());
    relay->hang_up();
    const Peer asks = busy.await(after_proof);
    relay->lead_to(service->listen_address());
    BusyService::refuse(asks);
    EXPECT_TRUE(comes_true([&] { return session->resumptions() == 1 || !session->status().ok(); }));
    const Status end = session->status();
    EXPECT_EQ(end.code(), after_proof ? Code::kResourceExhausted : Code::kOk) << end.to_string();
  }
}

TEST_P(CommandGone, WhenNobodyListensAnyMore) {
  serve_behind_relay();
  session.emplace(connect(relay->address(), {.resume_within = milliseconds(300)}));
  Channel channel = open(*session);
  must(channel.allocate({1}, 64));
  expect_fine(channel);
  relay->leave();
  EXPECT_TRUE(comes_true([&] { return !session->status().ok(); }));
  const Status end = session->status();
  EXPECT_THAT(end.code(), AnyOf(Code::kPeerDied, Code::kUnavailable)) << end.to_string();  // whichever way died first
  EXPECT_THAT(end.message(), HasSubstr("could not be gone on with for 300 ms (resume_within)"));
}
TEST_P(CommandGone, WhenItsTenantHasMoreOfThem) {
  serve_behind_relay({.most_away = 2});
  std::vector<SessionKey> keys;
  for (std::uint64_t i = 0; i < 3; ++i) {
    Stranger client(*this->client, relay->address());
    keys.push_back(client.begin());
    relay->hang_up();
    EXPECT_TRUE(client.fate().ok());
    EXPECT_TRUE(comes_true(
        [&] { return service->stats().away == std::min<std::uint64_t>(i + 1, 2) && service->stats().sessions <= 2; }));
  }
  Stranger first(*client, relay->address()), second(*client, relay->address());
  EXPECT_THAT(first.ask(keys[0]).message(), HasSubstr("its tenant had 2 more sessions whose clients were away"));
  EXPECT_TRUE(second.ask(keys[1]).ok());
  second.prove(keys[1]);
  EXPECT_TRUE(second.resumed(keys[1]));
  EXPECT_EQ(service->stats().away, 1u);
}

// ---- who is not its client -----------------------------------------------------------------------------------------

TEST_P(CommandResume, WhoHasNotTheSecretDoesNotGetTheSession) {
  serve_behind_relay();
  Stranger owner(*client, relay->address());
  const SessionKey key = owner.begin();
  owner.give_marks(1, 2);
  owner.await(2);
  const auto still_there = [&](std::uint64_t first) {
    owner.give_marks(first, 1);
    owner.await(first);
  };
  {
    SessionKey wrong = key;
    wrong.secret[0] ^= std::byte{1};
    Stranger guesses(*client, relay->address());
    ASSERT_TRUE(guesses.ask(wrong).ok());
    guesses.prove(wrong);
    EXPECT_EQ(guesses.fate().code(), Code::kPermissionDenied);
    still_there(3);
  }
  {
    SessionKey wrong = key;
    wrong.id[0] ^= std::byte{1};
    Stranger guesses(*client, relay->address());
    EXPECT_EQ(guesses.ask(wrong).code(), Code::kNotFound);
    still_there(4);
  }
  {
    Stranger says_other_things(*client, relay->address());
    ASSERT_TRUE(says_other_things.ask(key).ok());
    says_other_things.give_marks(1, 1);
    EXPECT_EQ(says_other_things.fate().code(), Code::kPermissionDenied);
    still_there(5);
  }
  {
    Stranger is_cut_short(*client, relay->address());
    is_cut_short.say(datapath::command::make_message({.type = static_cast<std::uint8_t>(MessageType::kResume)}));
    EXPECT_EQ(is_cut_short.fate().code(), Code::kDataLoss);
    still_there(6);
  }
  {
    Stranger never_proves(*client, relay->address());
    ASSERT_TRUE(never_proves.ask(key).ok());
    still_there(7);
  }
  {
    Stranger proves_within(*client, relay->address());
    const SessionKey own = proves_within.begin();
    proves_within.prove(own);
    EXPECT_EQ(proves_within.fate().code(), Code::kDataLoss) << "it has a peer";
    still_there(8);
  }
  {
    Stranger plain(*client, relay->address()), wants_it(*client, relay->address());
    plain.begin(0);
    EXPECT_EQ(wants_it.ask({}).code(), Code::kNotFound) << "what is not kept has no key";
    still_there(9);
  }
  EXPECT_EQ(service->stats().resumed, 0u);
}

TEST_P(CommandResume, AProofIsGoodForOneConnection) {
  serve_behind_relay();
  Stranger owner(*client, relay->address());
  const SessionKey key = owner.begin();
  lose();
  Stranger back(*client, relay->address());
  ASSERT_TRUE(back.ask(key).ok());
  const auto proof = datapath::command::points_message(key, back.attempt, std::vector<HeardBody>());
  back.say(proof);
  ASSERT_TRUE(back.resumed(key));
  // Who has overheard it says it again: the same nonce of his, and the same proof.
  Stranger repeats(*client, relay->address());
  auto message = datapath::command::make_message({.type = static_cast<std::uint8_t>(MessageType::kResume)});
  datapath::command::put(message, datapath::command::ResumeBody{key.id, back.attempt.client});
  repeats.say(message);
  repeats.hear(MessageType::kChallenge);
  repeats.say(proof);
  EXPECT_EQ(repeats.fate().code(), Code::kPermissionDenied);
  back.give_marks(1, 1);
  back.await(1);
}

TEST_P(CommandResume, OfTwoAtOnceTheLastHasIt) {
  serve_behind_relay();
  Stranger owner(*client, relay->address());
  const SessionKey key = owner.begin();
  owner.give_marks(1, 5);
  owner.await(5);
  lose();
  Stranger one(*client, relay->address()), other(*client, relay->address());
  ASSERT_TRUE(one.ask(key).ok());
  ASSERT_TRUE(other.ask(key).ok());
  one.prove(key);
  const auto has = one.resumed(key);
  ASSERT_TRUE(has && has->size() == 1);
  EXPECT_EQ(has->front().accepted, 5u);
  other.prove(key);
  ASSERT_TRUE(other.resumed(key));
  EXPECT_THAT(one.fate().message(), HasSubstr("over another peer"));
  other.give_marks(6, 1);
  other.await(6);
  EXPECT_EQ(service->stats().sessions, 1u);
  EXPECT_TRUE(comes_true([&] { return service->stats().commands == 6; })) << "once each";
}

TEST_P(CommandResume, WhoSaysToHaveHeardWhatWasNotSaidHasNoSession) {
  serve_behind_relay();
  for (const bool at_once : {true, false}) {
    Stranger owner(*client, relay->address());
    const SessionKey key = owner.begin();
    owner.give_marks(1, 2);
    owner.await(2);
    Stranger lies(*client, relay->address());
    if (at_once) {
      ASSERT_TRUE(lies.ask(key).ok());
      lies.prove(key, {{.channel = 0, .heard = 3}});
      EXPECT_THAT(lies.fate().message(), HasSubstr("command 3 of channel 0 gave, of which 2 have run"));
    } else {
      owner.say(datapath::command::make_message(
          {.type = static_cast<std::uint8_t>(MessageType::kHeard), .channel = 0, .sequence = 77}));
      EXPECT_THAT(owner.fate().message(), HasSubstr("command 77 of channel 0 gave, of which 2 have run"));
    }
    EXPECT_TRUE(comes_true([&] { return service->stats().sessions == 0; }));
  }
  EXPECT_EQ(service->stats().sessions_ended_wrong, 2u);
}

// As many as there may be sessions say that they come back, and nothing more; one of them has a session.
TEST_P(CommandResume, WhoShowsNothingKeepsNobodyFromGoingOn) {
  serve_behind_relay({.max_sessions = 2});
  session.emplace(connect_kept());
  Stranger other(*client, service->listen_address());
  const SessionKey key = other.begin();
  std::deque<Stranger> show_nothing;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(show_nothing.emplace_back(*client, service->listen_address()).ask(key).ok());
  }
  relay->hang_up();
  EXPECT_TRUE(comes_true([&] { return session->resumptions() == 1 || !session->status().ok(); }));
  EXPECT_TRUE(session->status().ok()) << session->status().to_string();
  expect_works(*session);
}

// Anonymous clients are one principal, so an id that was overheard is good for a challenge.
TEST_P(CommandResume, WhoHasTheIdAloneDoesNotKeepItsClientFromIt) {
  serve_behind_relay({.max_sessions = 2});
  Stranger owner(*client, relay->address());
  const SessionKey key = owner.begin();
  const SessionKey overheard{.id = key.id, .secret = {}};
  lose();
  std::deque<Stranger> others;
  const auto ask_again = [&] {
    for (int i = 0; i < 5; ++i) {
      ASSERT_TRUE(others.emplace_back(*client, service->listen_address()).ask(overheard).ok());
    }
  };
  ask_again();
  Stranger back(*client, service->listen_address());
  ASSERT_TRUE(back.ask(key).ok());
  ask_again();
  others.back().prove(overheard);
  EXPECT_EQ(others.back().fate().code(), Code::kPermissionDenied);
  back.prove(key);
  ASSERT_TRUE(back.resumed(key));
  ask_again();
  others.back().prove(overheard);
  EXPECT_EQ(others.back().fate().code(), Code::kPermissionDenied);
  back.give_marks(1, 1);
  back.await(1);
  EXPECT_EQ(service->stats().resumed, 1u);
}

// It has accepted five, and is told of the third again: what it has it does not run again, and says so.
TEST_P(CommandResume, WhatWasAcceptedIsNotAcceptedAgain) {
  serve_behind_relay();
  Stranger owner(*client, relay->address());
  const SessionKey key = owner.begin();
  owner.give_marks(1, 5);
  owner.await(5);
  lose();
  Stranger back(*client, relay->address());
  ASSERT_TRUE(back.ask(key).ok());
  back.prove(key);
  ASSERT_TRUE(back.resumed(key));
  back.give_marks(3, 3);
  EXPECT_THAT(back.fate().message(), HasSubstr("3 commands from 3 on of channel 0, where 5 is the last one"));
  EXPECT_TRUE(comes_true([&] { return service->stats().sessions == 0; }));
  EXPECT_EQ(service->stats().commands, 5u);
}

TEST_P(CommandResume, ASessionIsItsPrincipals) {
  serve({{.name = "trainer", .memory_bytes = 1 << 20}, {.name = "guest"}}, command::Sharing::kFree);
  EngineConfig config = config_for(GetParam().way);
  config.keys_file = keys_.path();
  const auto engine_of = [&](const std::string& name) {
    config.principal = name;
    Result<Engine> engine = Engine::create(config);
    EXPECT_TRUE(engine) << engine.error().to_string();
    return *std::move(engine);
  };
  Engine trainer = engine_of("trainer"), guest = engine_of("guest");
  Stranger owner(trainer, service->listen_address());
  const SessionKey key = owner.begin();
  owner.give_marks(1, 2);
  owner.await(2);
  Stranger thief(guest, service->listen_address());
  EXPECT_EQ(thief.ask(key).code(), Code::kNotFound) << "though it has the secret";
  owner.give_marks(3, 1);
  owner.await(3);
  // Its own, over another connection, while the service does not know yet that the first is lost.
  Stranger back(trainer, service->listen_address());
  ASSERT_TRUE(back.ask(key).ok());
  back.prove(key);
  EXPECT_TRUE(back.resumed(key));
  EXPECT_EQ(stats_of("trainer").sessions, 1u);
  EXPECT_EQ(stats_of("trainer").away, 0u);
}

// As many as its tenant may have, which is more than others may.
TEST_P(CommandResume, ASessionOfManyChannelsIsGoneOnWith) {
  constexpr std::uint32_t kChannels = 40;
  serve({{.name = "trainer", .channels = kChannels}}, command::Sharing::kFree);
  ASSERT_LT(command::ServiceConfig().channels, kChannels);
  Engine& engine = engine_of("trainer");
  Stranger owner(engine, service->listen_address());
  const SessionKey key = owner.begin();
  std::vector<HeardBody> heard(kChannels);
  for (std::size_t i = 0; i < heard.size(); ++i) heard[i].channel = static_cast<decltype(heard[i].channel)>(i);
  Stranger back(engine, service->listen_address());
  ASSERT_TRUE(back.ask(key).ok());
  back.prove(key, heard);
  EXPECT_TRUE(back.resumed(key));
  heard.emplace_back();
  Stranger again(engine, service->listen_address());
  ASSERT_TRUE(again.ask(key).ok());
  again.prove(key, heard);
  EXPECT_FALSE(again.resumed(key));
  EXPECT_EQ(again.refusal().code(), Code::kPermissionDenied);
}

// What is kept is its tenant's, and when it is not any more, nobody's.
TEST_P(CommandResume, WhatIsKeptCountsUntilItsTimeIsOver) {
  change_server = [this](EngineConfig& config) {
    config.keys_file = keys_.path();
    config.max_cut_sessions = 0;
  };
  command::ServiceConfig service_config;
  service_config.tenants = {{.name = "trainer", .memory_bytes = 100'000, .sessions = 2}};
  service_config.keep_away = milliseconds(1500);
  start(std::move(service_config), device_bytes, false);
  relay.emplace(service->listen_address());
  EngineConfig config = config_for(GetParam().way);
  config.keys_file = keys_.path();
  config.principal = "trainer";
  {
    Result<Engine> engine = Engine::create(config);
    ASSERT_TRUE(engine);
    Result<Session> made = Session::connect(*engine, relay->address(), patient({.resume_within = milliseconds(1)}));
    ASSERT_TRUE(made) << made.error().to_string();
    Channel channel = open(*made);
    must(channel.allocate({1}, 60'000));
    expect_fine(channel);
    EXPECT_EQ(stats_of("trainer").memory_bytes, GetParam().cuda ? stats_of("trainer").memory_bytes : 60'000u);
    relay->leave();  // it finds nobody, and is given up
    EXPECT_TRUE(comes_true([&] { return !made->status().ok(); }));
  }
  EXPECT_TRUE(comes_true([&] { return stats_of("trainer").away == 1; }));
  EXPECT_EQ(stats_of("trainer").sessions, 1u);
  EXPECT_GE(stats_of("trainer").memory_bytes, 60'000u);
  EXPECT_TRUE(comes_true([&] { return stats_of("trainer").sessions == 0; }));
  EXPECT_EQ(stats_of("trainer").memory_bytes, 0u);
  EXPECT_EQ(stats_of("trainer").away, 0u);
}

INSTANTIATE_TEST_SUITE_P(Ways, CommandResume, testing::ValuesIn(resume_ways()),
                         [](const auto& info) { return info.param.name(); });
// A wire with two ends alone, as DPDK's memif is, has no way for it.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CommandGone);
INSTANTIATE_TEST_SUITE_P(Ways, CommandGone, testing::ValuesIn(plain_ways()),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace fairlead
