// Peers that break the control protocol: they are refused or dropped, and the engine goes on serving others.
#include <dirent.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "datapath/identity/greeting.h"
#include "datapath/session/control_channel.h"
#include "datapath/session/control_socket.h"
#include "fairlead/engine.h"
#include "fairlead/log.h"
#include "tests/datapath/framed.h"
#include "tests/datapath/intruder.h"
#include "tests/keys_file.h"

namespace fairlead {
namespace {

namespace control = datapath::control;
using control::Frame;
using datapath::framed;
using datapath::Intruder;
using datapath::kPatience;
using datapath::Until;

/// What one says who wants to get in.
control::Hello hello() {
  control::Hello made = datapath::plain_hello();
  made.engine_name = "intruder";
  return made;
}

class HostilePeer : public testing::Test {
 protected:
  void SetUp() override { start(kPatience); }

  // Far above any real wait by default: what ends a session here is what it did, not how long it took.
  void start(std::chrono::milliseconds connect_timeout, Progress progress = Progress::kAuto,
             std::size_t max_handshakes = 256) {
    EngineConfig config;
    config.max_handshakes = max_handshakes;
    config.listen = "127.0.0.1:0";
    config.transport = "tcp";
    config.connect_timeout = connect_timeout;
    config.progress = progress;
    config.name = "server";
    engine_.reset();
    Result<Engine> created = Engine::create(config);
    ASSERT_TRUE(created) << created.error().to_string();
    engine_.emplace(std::move(*created));
  }

  static Frame ping() { return control::Ping{.nonce = 7}; }
  static Frame lookup(std::string name, bool prefix = false) {
    return control::Lookup{.request = 9, .name = std::move(name), .prefix = prefix, .after = {}};
  }

  /// The engine ends the session, and says why.
  static void expect_goodbye(Intruder& intruder, std::string_view words) {
    const auto end =
        intruder.answer([](const Frame& frame) { return std::holds_alternative<control::Goodbye>(frame); });
    ASSERT_TRUE(end) << words;
    EXPECT_EQ(std::get<control::Goodbye>(*end).code, static_cast<std::uint32_t>(Code::kDataLoss));
    EXPECT_NE(std::get<control::Goodbye>(*end).reason.find(words), std::string::npos)
        << std::get<control::Goodbye>(*end).reason;
    EXPECT_TRUE(intruder.closed_by_engine());
  }
  /// Greets properly, then sends `frame`.
  void expect_dropped_after_hello(const Frame& frame, std::string_view words) {
    Intruder intruder(engine_->listen_address());
    intruder.say("FAIRLEAD" + framed(hello()) + framed(frame));
    expect_goodbye(intruder, words);
  }
  static void expect_refused(Intruder& intruder, Code code, std::string_view words) {
    const auto refused =
        intruder.answer([](const Frame& frame) { return std::holds_alternative<control::Refused>(frame); });
    ASSERT_TRUE(refused) << words;
    EXPECT_EQ(std::get<control::Refused>(*refused).code, static_cast<std::uint32_t>(code));
    EXPECT_NE(std::get<control::Refused>(*refused).reason.find(words), std::string::npos)
        << std::get<control::Refused>(*refused).reason;
    EXPECT_TRUE(intruder.closed_by_engine());
  }

  void TearDown() override {
    // Whatever happened before: a good peer is served.
    EngineConfig config;
    config.transport = "tcp";
    Result<Engine> client = Engine::create(config);
    ASSERT_TRUE(client);
    Memory memory = *engine_->allocate(4096);
    ASSERT_TRUE(engine_->publish("region", memory, Access::kRemoteWrite).ok());
    Peer peer = *client->connect(engine_->listen_address());
    std::atomic<bool> done{false};
    std::thread driver([&] {  // for an engine that has no thread of its own
      while (!done) engine_->poll();
    });
    Result<RemoteMemory> remote = peer.lookup("region", kPatience);
    EXPECT_TRUE(remote) << remote.status().to_string();
    if (remote) {
      EXPECT_TRUE(peer.write(*client->allocate(4096), *remote).wait(kPatience).ok());
    }
    done = true;
    driver.join();
  }

  std::optional<Engine> engine_;
};

TEST_F(HostilePeer, GarbageAndOtherProtocols) {
  for (const std::string_view bytes :
       {std::string_view("GET / HTTP/1.1\r\n\r\n"), std::string_view("\0\0\0\0", 4),
        std::string_view("FAIRLEAD\xff\xff\xff\xff", 12), std::string_view("FAIRLEAD\x04\0\0\0\xff\xff\xff\xff", 16)}) {
    Intruder intruder(engine_->listen_address());
    intruder.say(bytes);
    EXPECT_TRUE(intruder.closed_by_engine());
  }
  EXPECT_EQ(engine_->stats().handshakes_refused, 4u);
}

TEST_F(HostilePeer, SilenceIsGivenUp) {
  start(std::chrono::milliseconds(300));
  Intruder silent(engine_->listen_address()), half(engine_->listen_address());
  half.say("FAIRL");
  EXPECT_TRUE(silent.closed_by_engine());
  EXPECT_TRUE(half.closed_by_engine());
}

TEST_F(HostilePeer, ConnectionsThatSayNothingKeepNobodyOut) {
  start(kPatience, Progress::kAuto, 4);
  std::vector<std::unique_ptr<Intruder>> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(std::make_unique<Intruder>(engine_->listen_address()));
  Intruder greets(engine_->listen_address());
  greets.say("FAIRLEAD" + framed(hello()));
  EXPECT_TRUE(greets.answer([](const Frame& frame) { return std::holds_alternative<control::Hello>(frame); }));
  for (int i = 0; i < 16; ++i) EXPECT_TRUE(silent[static_cast<std::size_t>(i)]->closed_by_engine()) << i;
  EXPECT_GE(engine_->stats().handshakes_refused, 16u);
  EXPECT_LE(engine_->stats().handshakes_refused, 17u) << "four are kept, perhaps one went for who greeted";
}

TEST_F(HostilePeer, AnotherVersionIsToldWhy) {
  control::Hello newer = hello();
  newer.version_min = 7;
  newer.version_max = 9;
  Intruder intruder(engine_->listen_address());
  intruder.say("FAIRLEAD" + framed(newer));
  expect_refused(intruder, Code::kVersionMismatch, "7..9");
}

TEST_F(HostilePeer, HellosThatMakeNoSense) {
  control::Hello no_window = hello();
  no_window.event_window = 0;
  control::Hello just_right = hello();
  just_right.transports.resize(64, {.name = {}, .kind = "tcp", .software = false, .describe = {}});
  control::Hello many = just_right;
  many.transports.emplace_back();
  Intruder first(engine_->listen_address()), second(engine_->listen_address()), third(engine_->listen_address());
  first.say("FAIRLEAD" + framed(no_window));
  expect_refused(first, Code::kInvalidArgument, "event window 0");
  second.say("FAIRLEAD" + framed(many));
  expect_refused(second, Code::kInvalidArgument, "65 transports (limit 64)");
  third.say("FAIRLEAD" + framed(lookup("x")));
  expect_goodbye(third, "spoke before its hello");
  Intruder fourth(engine_->listen_address());
  fourth.say("FAIRLEAD" + framed(just_right));
  EXPECT_TRUE(fourth.answer([](const Frame& frame) { return std::holds_alternative<control::Hello>(frame); }));
  EXPECT_EQ(engine_->stats().handshakes_refused, 3u);
}

// It thought better of it.
TEST_F(HostilePeer, WhoSaysGoodbyeBeforeItsHelloIsLetGo) {
  Intruder intruder(engine_->listen_address());
  intruder.say("FAIRLEAD" + framed(control::Goodbye{}));
  const auto end = intruder.answer([](const Frame&) { return true; });
  ASSERT_TRUE(end && std::holds_alternative<control::Goodbye>(*end));
  EXPECT_EQ(std::get<control::Goodbye>(*end).code, static_cast<std::uint32_t>(Code::kOk));
  EXPECT_TRUE(intruder.closed_by_engine());
  EXPECT_EQ(engine_->stats().handshakes_refused, 1u) << "it became no session";
}

TEST_F(HostilePeer, FramesOutOfTurn) {
  expect_dropped_after_hello(hello(), "unexpected control frame (type 1)");
  expect_dropped_after_hello(control::PathOffer(), "offered a path (epoch 0) out of turn");
  expect_dropped_after_hello(control::Fence{.epoch = 0, .received = 99},
                             "it received up to message 99; 0 were acknowledged and 0 sent");
  expect_dropped_after_hello(Frame(), "unexpected control frame (type 0)");
}

TEST_F(HostilePeer, FramesOfAClassThatItDoesNotHave) {
  expect_dropped_after_hello(control::PathOffer{.epoch = 1, .description = "x", .probe = {}, .flow = 1},
                             "unexpected control frame (type 3, flow 1)");  // of a version that has none
  control::Hello knows_classes = hello();
  knows_classes.version_max = 4;
  for (const auto& [frame, words] :
       {std::pair<Frame, const char*>{control::Fence{.epoch = 0, .flow = 2}, "(type 7, flow 2)"},
        {control::Fence{.epoch = 0, .flow = 1}, "(type 7, flow 1)"},
        {control::PathWanted{.flow = 1}, "(type 16, flow 1)"},
        {control::PathWanted{.flow = 0}, "(type 16)"},
        {control::PathOffer{.epoch = 0, .description = {}, .probe = {}, .flow = 1},
         "offered a path (epoch 0) out of turn"}}) {
    Intruder intruder(engine_->listen_address());
    intruder.say("FAIRLEAD" + framed(knows_classes) + framed(frame));
    expect_goodbye(intruder, words);
  }
}

TEST_F(HostilePeer, AFenceOfAPathThatNeverWasIsIgnored) {
  const Frame fence = control::Fence{.epoch = 5, .received = 0};
  Intruder intruder(engine_->listen_address());
  intruder.say("FAIRLEAD" + framed(hello()) + framed(fence) + framed(ping()));
  const auto next = intruder.answer([](const Frame& frame) { return !std::holds_alternative<control::Hello>(frame); });
  ASSERT_TRUE(next);
  EXPECT_TRUE(std::holds_alternative<control::Ping>(*next)) << next->index();
}

TEST_F(HostilePeer, OffersThatCannotWorkAreAnswered) {
  for (const int broken : {0, 1, 2}) {
    const Frame frame = control::PathOffer{.epoch = 1,
                                           .active_transport = broken == 0 ? 7U : 0U,
                                           .passive_transport = broken == 1 ? 7U : 0U,
                                           .description = broken == 2 ? std::string(100'000, 'x') : "nonsense",
                                           .probe = {}};
    Intruder intruder(engine_->listen_address());
    intruder.say("FAIRLEAD" + framed(hello()) + framed(frame));
    const auto down =
        intruder.answer([](const Frame& answer) { return std::holds_alternative<control::PathDown>(answer); });
    ASSERT_TRUE(down) << broken;
    EXPECT_NE(std::get<control::PathDown>(*down).reason.find("transports that do not match"), std::string::npos)
        << std::get<control::PathDown>(*down).reason;
  }
}

TEST_F(HostilePeer, LookupsAreAnsweredAndBounded) {
  Memory memory = *engine_->allocate(64);
  for (int i = 0; i < 3000; ++i) {
    ASSERT_TRUE(engine_->publish(std::string(900, 'n') + std::to_string(i), memory, Access::kRemoteRead).ok());
  }
  Intruder intruder(engine_->listen_address());
  intruder.say("FAIRLEAD" + framed(hello()) + framed(lookup("", true)));
  const Until is_page = [](const Frame& frame) { return std::holds_alternative<control::Regions>(frame); };
  const auto page = intruder.answer(is_page);
  ASSERT_TRUE(page);
  EXPECT_TRUE(std::get<control::Regions>(*page).more);
  EXPECT_LT(framed(*page).size(), datapath::FrameReader::kMaxFrame);
  for (const bool prefix : {false, true}) {  // names that no region can have
    intruder.say(framed(lookup(std::string(900'000, 'x'), prefix)));
    const auto refused = intruder.answer(is_page);
    ASSERT_TRUE(refused);
    EXPECT_EQ(std::get<control::Regions>(*refused).code, static_cast<std::uint32_t>(Code::kInvalidArgument));
    EXPECT_LT(framed(*refused).size(), 1000u);
  }
}

// Who does not read its answers is asked nothing more of; when it reads, all are answered.
TEST_F(HostilePeer, WhoDoesNotReadIsNotRead) {
  constexpr int kLookups = 4000;
  const std::string name(1000, 'n');
  Memory memory = *engine_->allocate(64);
  for (int i = 0; i < 32; ++i) {
    ASSERT_TRUE(engine_->publish(name + std::to_string(i), memory, Access::kRemoteRead).ok());
  }
  std::string rest = "FAIRLEAD" + framed(hello());
  for (int i = 0; i < kLookups; ++i) rest += framed(lookup(name, true));
  Intruder intruder(engine_->listen_address(), 4096);
  EngineConfig config;
  config.transport = "tcp";
  Result<Engine> client = Engine::create(config);
  ASSERT_TRUE(client);
  Peer good = *client->connect(engine_->listen_address());
  std::string_view left = rest;
  int refused = 0;  // times in a row that nothing could be said, though the engine took turns
  while (!left.empty() && refused < 5) {
    const std::size_t said = intruder.try_to_say(left);
    left.remove_prefix(said);
    refused = said == 0 ? refused + 1 : 0;
    if (said != 0) continue;
    ASSERT_TRUE(good.lookup(name + "1", kPatience)) << "others are served";
  }
  EXPECT_FALSE(left.empty()) << "all lookups were read, though no answer was";
  int answers = 0;
  const auto count = [&](const Frame& frame) {
    answers += std::holds_alternative<control::Regions>(frame) ? 1 : 0;
    return true;
  };
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (answers < kLookups && std::chrono::steady_clock::now() < deadline) {
    left.remove_prefix(intruder.try_to_say(left));
    ASSERT_TRUE(intruder.take(count, 1));
  }
  EXPECT_EQ(answers, kLookups);
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  DIR* folder = ::opendir("/proc/self/fd");
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

TEST_F(HostilePeer, ATurnAcceptsABoundedNumber) {
  start(kPatience, Progress::kApplication);
  std::vector<UniqueFd> flood;
  for (int i = 0; i < 100; ++i) flood.push_back(datapath::dial(engine_->listen_address()));
  const std::size_t before = open_descriptors();
  std::size_t now = before;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (now < before + flood.size() && std::chrono::steady_clock::now() < deadline) {
    engine_->poll();
    const std::size_t after = open_descriptors();
    EXPECT_LE(after - now, 16u);
    now = after;
  }
  EXPECT_EQ(now, before + flood.size());
}

TEST_F(HostilePeer, ATurnHearsABoundedNumberOfFrames) {
  constexpr int kPings = 300;
  start(kPatience, Progress::kApplication);
  Intruder intruder(engine_->listen_address());
  bool greeted = false;
  int answers = 0;
  const auto count = [&](const Frame& frame) {
    greeted |= std::holds_alternative<control::Hello>(frame);
    answers += std::holds_alternative<control::Ping>(frame) ? 1 : 0;
    return true;
  };
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  const auto turn = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // or the connections are not looked at in each
    engine_->poll();
    return intruder.take(count) && std::chrono::steady_clock::now() < deadline;
  };
  intruder.say("FAIRLEAD" + framed(hello()));
  while (!greeted && turn()) {
  }
  std::string flood;
  for (int i = 0; i < kPings; ++i) flood += framed(ping());
  intruder.say(flood);
  for (int turns = 1; answers < kPings && turn(); ++turns) {
    EXPECT_LE(answers, turns * static_cast<int>(datapath::ControlChannel::kTurnFrames));
  }
  EXPECT_EQ(answers, kPings);
}

std::atomic<int> accept_failures{0};
void watch_for_failing_accepts(LogLevel, std::string_view line) {
  accept_failures += line.find("cannot accept on ") != std::string_view::npos ? 1 : 0;
}

TEST_F(HostilePeer, MoreConnectionsThanDescriptorsAreSurvived) {
  sockaddr_in server{};
  server.sin_family = AF_INET;
  server.sin_port = htons(parse_host_port(engine_->listen_address())->port);
  server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::vector<UniqueFd> flood;
  for (int i = 0; i < 30; ++i) flood.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  accept_failures = 0;
  set_log_level(LogLevel::kWarning);
  set_log_sink(&watch_for_failing_accepts);
  const rlimit none{0, before.rlim_max};  // what is open stays open; nothing can be opened
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  for (const UniqueFd& fd : flood) ::connect(fd.get(), reinterpret_cast<sockaddr*>(&server), sizeof server);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (accept_failures == 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  set_log_sink(nullptr);
  EXPECT_GE(accept_failures, 1);
  // Once there are descriptors again, those who waited are served.
  const std::string hello_bytes = "FAIRLEAD" + framed(hello());
  ASSERT_GT(::send(flood.back().get(), hello_bytes.data(), hello_bytes.size(), MSG_NOSIGNAL), 0);
  pollfd readable{flood.back().get(), POLLIN, 0};
  EXPECT_EQ(::poll(&readable, 1, 60'000), 1);
}

// An engine that asks for keys, and who has none: a recorded proof, nothing at all, other frames first.
TEST(HostileStranger, GetsNothingWithoutAKey) {
  const test::KeysFile keys("trainer " + std::string(64, '7') + "\n");
  EngineConfig config;
  config.listen = "127.0.0.1:0";
  config.transport = "tcp";
  config.keys_file = keys.path();
  Result<Engine> engine = Engine::create(config);
  ASSERT_TRUE(engine) << engine.error().to_string();
  control::Hello claim = hello();
  claim.version_max = 3;
  claim.principal = "trainer";
  claim.nonce = std::string(32, 'n');
  const auto code_of = [](Intruder& intruder) {
    const auto end = intruder.answer([](const Frame& frame) {
      return std::holds_alternative<control::Refused>(frame) || std::holds_alternative<control::Goodbye>(frame);
    });
    if (!end) return Code::kOk;
    const auto* refused = std::get_if<control::Refused>(&*end);
    return static_cast<Code>(refused != nullptr ? refused->code : std::get<control::Goodbye>(*end).code);
  };
  const auto challenge_of = [](Intruder& intruder) {
    const auto frame = intruder.answer([](const Frame& each) { return each.index() > 0; });
    EXPECT_TRUE(frame && std::holds_alternative<control::Challenge>(*frame)) << "nothing else is told before";
    return frame && std::holds_alternative<control::Challenge>(*frame) ? std::get<control::Challenge>(*frame).nonce
                                                                       : "";
  };

  // Who has the key, once: its words are recorded.
  const datapath::Principals known = *datapath::Principals::load(keys.path());
  datapath::Greeting trainer(known, "trainer", false);
  control::Hello introduced;
  trainer.introduce(introduced, claim.nonce);
  Intruder first(engine->listen_address());
  first.say("FAIRLEAD" + framed(claim));
  const control::Proof recorded = *trainer.answer({.nonce = challenge_of(first)});
  first.say(framed(recorded));
  EXPECT_TRUE(first.answer([](const Frame& frame) { return std::holds_alternative<control::Hello>(frame); }));

  for (const std::string& then : {framed(recorded), framed(control::Proof{.digest = ""}),
                                  framed(control::Proof{.digest = std::string(32, '\0')})}) {
    Intruder again(engine->listen_address());
    again.say("FAIRLEAD" + framed(claim));
    EXPECT_EQ(challenge_of(again).size(), 32U);
    again.say(then);
    EXPECT_EQ(code_of(again), Code::kPermissionDenied);
    EXPECT_TRUE(again.closed_by_engine());
  }
  for (const std::string& instead :
       {framed(claim), framed(control::Lookup{.request = 1, .name = "", .prefix = true, .after = {}}),
        framed(control::PathOffer{}), framed(control::Challenge{.nonce = std::string(32, 'c')})}) {
    Intruder rude(engine->listen_address());
    rude.say("FAIRLEAD" + framed(claim) + instead);
    EXPECT_EQ(code_of(rude), Code::kDataLoss);
    EXPECT_TRUE(rude.closed_by_engine());
  }
  Intruder early(engine->listen_address());
  early.say("FAIRLEAD" + framed(recorded));
  EXPECT_EQ(code_of(early), Code::kDataLoss);
  EXPECT_EQ(engine->stats().handshakes_refused, 8U);
}

}  // namespace
}  // namespace fairlead
