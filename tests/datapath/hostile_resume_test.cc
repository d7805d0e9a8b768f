// Who goes on with a session over another control connection, and must not; and who lies about what it has heard.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "datapath/identity/resumption.h"
#include "fairlead/engine.h"
#include "tests/datapath/framed.h"
#include "tests/datapath/intruder.h"

namespace fairlead {
namespace {

namespace control = datapath::control;
using control::Frame;
using datapath::framed;
using datapath::Intruder;
using datapath::kPatience;
using datapath::Resumption;

template <typename Body>
bool is(const Frame& frame) {
  return std::holds_alternative<Body>(frame);
}

class HostileResume : public testing::Test {
 protected:
  void SetUp() override { start({}); }
  void start(EngineConfig config) {
    config.listen = "127.0.0.1:0";
    config.transport = "tcp";
    config.connect_timeout = kPatience;
    engine_.reset();
    Result<Engine> created = Engine::create(config);
    ASSERT_TRUE(created) << created.error().to_string();
    engine_.emplace(std::move(*created));
  }

  /// A session that is known to be kept, of an honest peer so far.
  struct Session {
    std::unique_ptr<Intruder> connection;
    std::uint64_t id = 0;
    Resumption resumption;
  };
  Session greet(std::uint32_t version = 5) {
    Session made;
    made.connection = connect();
    control::Hello hello = datapath::plain_hello();
    hello.version_max = version;
    made.connection->say("FAIRLEAD" + framed(hello));
    const auto answer = made.connection->answer(is<control::Hello>);
    EXPECT_TRUE(answer);
    if (!answer) return made;
    const auto& theirs = std::get<control::Hello>(*answer);
    made.id = theirs.session_id;
    EXPECT_EQ(theirs.resume.size(), version >= 5 ? Resumption::kSecretBytes : 0U);
    made.resumption.begin({}, "", theirs.resume);
    return made;
  }
  std::unique_ptr<Intruder> connect() { return std::make_unique<Intruder>(engine_->listen_address()); }
  static std::string nonce() { return std::string(Resumption::kNonceBytes, 'n'); }

  /// Asks to go on with a session; the challenge, or nothing.
  static std::optional<control::Challenge> ask(Intruder& connection, const control::Resume& asked) {
    connection.say("FAIRLEAD" + framed(asked));
    const auto answer = connection.answer([](const Frame&) { return true; });
    EXPECT_TRUE(answer && is<control::Challenge>(*answer));
    return answer && is<control::Challenge>(*answer) ? std::optional(std::get<control::Challenge>(*answer))
                                                     : std::nullopt;
  }
  /// Goes on with it as its peer would.
  void resume(Session& session, std::uint64_t heard = 0) {
    auto next = connect();
    const auto challenge = ask(*next, session.resumption.ask(session.id, heard, nonce()));
    ASSERT_TRUE(challenge);
    next->say(framed(*session.resumption.answer(*challenge)));
    const auto resumed = next->answer(is<control::Resumed>);
    ASSERT_TRUE(resumed);
    EXPECT_TRUE(session.resumption.check(std::get<control::Resumed>(*resumed)).ok());
    session.connection = std::move(next);
  }
  static void expect_alive(Session& session) {
    session.connection->say(framed(control::Ping{.nonce = 7}));
    EXPECT_TRUE(session.connection->answer([](const Frame& frame) {
      const auto* ping = std::get_if<control::Ping>(&frame);
      return ping != nullptr && ping->reply && ping->nonce == 7;
    }));
  }
  static void expect_refused(Intruder& intruder, Code code) {
    const auto refused = intruder.answer(is<control::Refused>);
    ASSERT_TRUE(refused);
    EXPECT_EQ(std::get<control::Refused>(*refused).code, static_cast<std::uint32_t>(code))
        << std::get<control::Refused>(*refused).reason;
    EXPECT_TRUE(intruder.closed_by_engine());
  }
  static void expect_end(Intruder& intruder, Code code, std::string_view words) {
    const auto end = intruder.answer(is<control::Goodbye>);
    ASSERT_TRUE(end);
    EXPECT_EQ(std::get<control::Goodbye>(*end).code, static_cast<std::uint32_t>(code));
    EXPECT_NE(std::get<control::Goodbye>(*end).reason.find(words), std::string::npos)
        << std::get<control::Goodbye>(*end).reason;
  }

  std::optional<Engine> engine_;
};

TEST_F(HostileResume, ThePeerItselfMayGoOn) {
  Session session = greet();
  for (int i = 0; i < 5; ++i) {
    std::unique_ptr<Intruder> old = std::move(session.connection);
    if (i % 2 == 0) old.reset();  // else the engine knows only by the new one that the old is over
    ASSERT_NO_FATAL_FAILURE(resume(session, 0));
    expect_alive(session);
    if (old != nullptr) {
      EXPECT_TRUE(old->closed_by_engine());
    }
  }
}

TEST_F(HostileResume, AGuessChangesNothing) {
  Session victim = greet();
  for (const bool is_known : {true, false}) {
    const auto intruder = connect();
    const control::Resume asked{
        .session_id = is_known ? victim.id : victim.id + 1, .attempt = 1, .heard = 0, .nonce = nonce()};
    if (!is_known) {
      intruder->say("FAIRLEAD" + framed(asked));
      expect_refused(*intruder, Code::kNotFound);
      continue;
    }
    ASSERT_TRUE(ask(*intruder, asked));
    intruder->say(framed(control::Proof{.digest = std::string(32, '\0')}));
    expect_refused(*intruder, Code::kPermissionDenied);
  }
  expect_alive(victim);
}

TEST_F(HostileResume, WhatWasOverheardIsNoGoodAgain) {
  Session victim = greet();
  const auto first = connect();
  const control::Resume asked = victim.resumption.ask(victim.id, 0, nonce());
  const auto challenge = ask(*first, asked);
  ASSERT_TRUE(challenge);
  const control::Proof proof = *victim.resumption.answer(*challenge);
  first->say(framed(proof));
  ASSERT_TRUE(first->answer(is<control::Resumed>));
  const auto replay = connect();
  ASSERT_TRUE(ask(*replay, asked));
  replay->say(framed(proof));
  expect_refused(*replay, Code::kPermissionDenied);
  first->say(framed(control::Ping{.nonce = 7}));
  EXPECT_TRUE(first->answer(is<control::Ping>)) << "it goes on where it was";
}

TEST_F(HostileResume, ASessionOfAnOlderVersionCannotBeResumed) {
  Session old = greet(4);
  const auto intruder = connect();
  ASSERT_TRUE(ask(*intruder, old.resumption.ask(old.id, 0, nonce())));
  intruder->say(framed(*old.resumption.answer({.nonce = nonce()})));
  expect_refused(*intruder, Code::kPermissionDenied);
  expect_alive(old);
}

TEST_F(HostileResume, WhoAsksSaysNothingElse) {
  Session victim = greet();
  const Frame others[] = {datapath::plain_hello(),
                          control::Lookup{.request = 1, .name = "x", .prefix = false, .after = {}}, control::Goodbye{},
                          control::Heard{.count = 1},
                          control::Resume{.session_id = victim.id, .attempt = 2, .heard = 0, .nonce = nonce()}};
  for (const Frame& other : others) {
    const auto intruder = connect();
    ASSERT_TRUE(ask(*intruder, {.session_id = victim.id, .attempt = 1, .heard = 0, .nonce = nonce()}));
    intruder->say(framed(other));
    EXPECT_TRUE(intruder->closed_by_engine()) << other.index();
  }
  expect_alive(victim);
}

TEST_F(HostileResume, NobodyHasHeardWhatWasNotSaid) {
  Session liar = greet();
  liar.connection->say(framed(control::Heard{.count = 99}));
  expect_end(*liar.connection, Code::kDataLoss, "unexpected control frame (type 19)");
  Session other = greet();
  const auto next = connect();
  const auto challenge = ask(*next, other.resumption.ask(other.id, 99, nonce()));
  ASSERT_TRUE(challenge);
  next->say(framed(*other.resumption.answer(*challenge)));
  expect_end(*next, Code::kDataLoss, "heard 99 control frames of ours");
  Session old = greet(4);
  old.connection->say(framed(control::Heard{.count = 0}));
  expect_end(*old.connection, Code::kDataLoss, "unexpected control frame (type 19)");
}

// Who reads what is said and never says so makes us keep it, up to a limit.
TEST_F(HostileResume, WhoNeverSaysWhatItHeardIsEnded) {
  Memory memory = *engine_->allocate(64);
  for (int i = 0; i < 900; ++i) {
    ASSERT_TRUE(engine_->publish(std::string(900, 'n') + std::to_string(i), memory, Access::kRemoteRead).ok());
  }
  Session session = greet();
  std::optional<Frame> end;
  bool open = true;
  for (int i = 0; i < 200 && open && !end; ++i) {
    session.connection->try_to_say(
        framed(control::Lookup{.request = static_cast<std::uint64_t>(i + 1), .name = "", .prefix = true, .after = {}}));
    bool answered = false;
    while (open && !answered && !end) {
      open = session.connection->take(
          [&](const Frame& frame) {
            answered |= is<control::Regions>(frame);
            if (is<control::Goodbye>(frame)) end = frame;
            return true;
          },
          100);
    }
  }
  ASSERT_TRUE(end);
  EXPECT_EQ(std::get<control::Goodbye>(*end).code, static_cast<std::uint32_t>(Code::kResourceExhausted));
}

TEST_F(HostileResume, SoManyWaitAndNoMore) {
  EngineConfig config;
  config.max_cut_sessions = 3;
  start(config);
  std::vector<Session> sessions;
  for (int i = 0; i < 40; ++i) sessions.push_back(greet());
  for (Session& session : sessions) session.connection.reset();  // the engine hears of many in one turn
  const auto is_kept = [&](const Session& session) {
    const auto intruder = connect();
    intruder->say("FAIRLEAD" +
                  framed(control::Resume{.session_id = session.id, .attempt = 1, .heard = 0, .nonce = nonce()}));
    const auto answer = intruder->answer([](const Frame&) { return true; });
    return answer && is<control::Challenge>(*answer);
  };
  const auto kept = [&] { return std::count_if(sessions.begin(), sessions.end(), is_kept); };
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (kept() > 3 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(kept(), 3);
}

// Nor has anybody more sessions than are its by breaking off and coming back.
TEST_F(HostileResume, WhoComesAnewDoesNotGoOnAsWell) {
  EngineConfig config;
  config.max_principal_sessions = 1;
  start(config);
  Session old = greet();
  old.connection.reset();
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  bool admitted = false;
  std::unique_ptr<Intruder> anew;
  while (!admitted && std::chrono::steady_clock::now() < deadline) {
    anew = connect();
    anew->say("FAIRLEAD" + framed(datapath::plain_hello()));
    const auto answer = anew->answer([](const Frame&) { return true; });
    admitted = answer && is<control::Hello>(*answer);
  }
  ASSERT_TRUE(admitted);
  const auto back = connect();
  back->say("FAIRLEAD" + framed(old.resumption.ask(old.id, 0, nonce())));
  expect_refused(*back, Code::kNotFound);
}

// Those that wait for their peer keep nobody out.
TEST_F(HostileResume, WhoIsCutTakesNoRoom) {
  EngineConfig config;
  config.max_principal_sessions = 2;
  start(config);
  for (int i = 0; i < 10; ++i) {
    Session session = greet();
    EXPECT_NE(session.id, 0U) << i;
    session.connection.reset();
    // The engine knows of it when another is there.
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    bool known = false;
    while (!known && std::chrono::steady_clock::now() < deadline) {
      const auto probe = connect();
      probe->say("FAIRLEAD" + framed(datapath::plain_hello()));
      const auto answer = probe->answer([](const Frame&) { return true; });
      known = answer && is<control::Hello>(*answer);
    }
    EXPECT_TRUE(known) << i;
  }
}

}  // namespace
}  // namespace fairlead
