// What clients and services do to each other: bytes that are no commands, more than the credits, ends in the middle.
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <array>
#include <optional>
#include <random>

#include "datapath/command/codec.h"
#include "datapath/command/device/welcome.h"
#include "tests/conformance/command/command_pair.h"
#include "tests/no_threads.h"

namespace fairlead {
namespace {

using command::Channel;
using command::Handle;
using command::Session;
using command::Stage;
using datapath::command::Bytes;
using datapath::command::MessageHeader;
using datapath::command::MessageType;
using datapath::command::Opcode;
using testing::HasSubstr;

/// A peer of the service's that says what it likes.
class Stranger {
 public:
  Stranger(Engine& engine, const std::string& address) {
    Result<Peer> connected = engine.connect(address);
    EXPECT_TRUE(connected);
    peer = *connected;
    EXPECT_TRUE(peer.wait_ready(kPatience).ok());
  }
  void say(Bytes message, TrafficClass traffic = TrafficClass::kCommands,
           std::uint64_t value = datapath::command::kMessageValue) {
    said.push_back(peer.send(message, value, {.traffic = traffic}));
  }
  void greet() {
    say(datapath::command::hello_message({.payload_bytes = 4096}));
    const Event welcome = next_of(peer, Event::Kind::kMessage);
    ASSERT_GT(welcome.data.size(), sizeof(MessageHeader));
    const auto said = datapath::command::read_welcome(Bytes(welcome.data).subspan(sizeof(MessageHeader)), false);
    ASSERT_TRUE(said);
    EXPECT_EQ(said->devices.size(), 1u);
  }
  void give(std::uint64_t first, std::uint32_t count, Bytes record) {
    std::vector<std::byte> message = datapath::command::make_message(
        {.type = static_cast<std::uint8_t>(MessageType::kCommands), .count = count, .sequence = first});
    for (std::uint32_t i = 0; i < count; ++i) message.insert(message.end(), record.begin(), record.end());
    say(message);
  }
  /// Until the service has ended the session: what it said was wrong.
  Status fate() {
    Status why;
    for (;;) {
      Event event = peer.next_event(kPatience);
      if (event.kind == Event::Kind::kNone || event.kind == Event::Kind::kClosed) {
        EXPECT_EQ(event.kind, Event::Kind::kClosed) << "it goes on";
        return why;
      }
      Bytes body = event.data;
      const auto header = datapath::command::take<MessageHeader>(body);
      if (header && header->type == static_cast<std::uint8_t>(MessageType::kRefused)) {
        why = datapath::command::refusal_in(body);
      }
    }
  }

  Peer peer;
  std::vector<Transfer> said;
};

std::vector<std::byte> mark() {
  std::vector<std::byte> bytes;
  datapath::command::put(bytes, datapath::command::RecordHeader{static_cast<std::uint16_t>(Opcode::kMark), 0, 8});
  return bytes;
}
std::vector<std::byte> copy_out(std::uint64_t bytes) {
  std::vector<std::byte> record;
  datapath::command::put(record, datapath::command::RecordHeader{static_cast<std::uint16_t>(Opcode::kCopyOut), 0, 32});
  datapath::command::put(record, datapath::command::CopyBody{1, 0, bytes});
  return record;
}
std::vector<std::byte> allocate(std::uint64_t bytes) {
  std::vector<std::byte> record;
  datapath::command::put(record, datapath::command::RecordHeader{static_cast<std::uint16_t>(Opcode::kAllocate), 0, 24});
  datapath::command::put(record, datapath::command::AllocateBody{1, bytes});
  return record;
}

class CommandEnds : public CommandPair {
 protected:
  /// A session that nothing happened to.
  void expect_untouched() {
    Channel channel = open(*session);
    const Handle handle = session->new_handle();
    must(channel.allocate(handle, 64));
    std::array<std::byte, 64> bytes{};
    must(channel.fill(handle, 0, 64, 9));
    must(channel.copy_out(bytes, handle, 0));
    expect_fine(channel);
    EXPECT_EQ(bytes[63], std::byte{9});
  }
};

TEST_P(CommandEnds, WhatIsNoCommandEndsItsSessionAlone) {
  const std::string address = service->listen_address();
  std::uint64_t wrong = 0;
  {
    Stranger stranger(*client, address);
    stranger.say(mark());
    EXPECT_EQ(stranger.fate().code(), Code::kDataLoss);
  }
  {
    Stranger stranger(*client, address);
    stranger.say(datapath::command::hello_message({.oldest = datapath::command::kNewestVersion + 1, .newest = 99}));
    EXPECT_EQ(stranger.fate().code(), Code::kVersionMismatch);
  }
  {
    Stranger stranger(*client, address);
    stranger.greet();
    stranger.say({}, TrafficClass::kCommands, 5);
    EXPECT_EQ(stranger.fate().code(), Code::kDataLoss);
    ++wrong;
  }
  {
    Stranger stranger(*client, address);
    stranger.greet();
    stranger.give(1, 3, mark());
    stranger.give(4, 1, Bytes(copy_out(8)).first(24));
    EXPECT_THAT(stranger.fate().message(), HasSubstr("command 4 of channel 0 is malformed"));
    ++wrong;
  }
  expect_untouched();
  std::mt19937 random(11);
  for (int i = 0; i < 8; ++i, ++wrong) {
    Stranger stranger(*client, address);
    stranger.greet();
    std::vector<std::byte> noise(random() % 3000);
    for (std::byte& byte : noise) byte = static_cast<std::byte>(random());
    // Of a type that there is in one half; never a whole message.
    noise.insert(noise.begin(), static_cast<std::byte>(i % 2 == 0 ? 4 : 200));
    stranger.say(noise);
    EXPECT_FALSE(stranger.fate().ok()) << i;
  }
  expect_untouched();
  EXPECT_TRUE(comes_true([&] { return service->stats().sessions == 1; }));
  EXPECT_EQ(service->stats().sessions_ended_wrong, wrong);
  EXPECT_EQ(service->stats().sessions_refused, 2u);
}

TEST_P(CommandEnds, MoreThanTheCreditsEndsTheSession) {
  Stranger stranger(*client, service->listen_address());
  stranger.greet();
  std::vector<std::byte> fence;  // on a channel that has nothing, so that nothing runs
  datapath::command::put(fence, datapath::command::RecordHeader{static_cast<std::uint16_t>(Opcode::kFence), 0, 24});
  datapath::command::put(fence, datapath::command::FenceBody{1, 1});
  for (std::uint64_t first = 1; first < 4000; first += 100) stranger.give(first, 100, fence);
  EXPECT_EQ(stranger.fate().code(), Code::kResourceExhausted);
  expect_untouched();
}

// It asks for 16 MiB in pieces and reads nothing: its commands stand still once as much as either end keeps is under
// way, and others' do not.
TEST_P(CommandEnds, AClientThatDoesNotReadIsHeld) {
  constexpr std::uint64_t kPieces = 160, kPiece = 100 << 10;
  start({.payload_credit = 1 << 20, .held_results = 1 << 20});
  Stranger stranger(*client, service->listen_address());
  stranger.greet();
  stranger.give(1, 1, allocate(1 << 20));
  stranger.give(2, kPieces, copy_out(kPiece));
  EXPECT_TRUE(comes_true([&] { return service->stats().commands > 10; }));
  constexpr int kOthers = 5;
  for (int i = 0; i < kOthers; ++i) expect_untouched();
  const std::uint64_t others = 3 * kOthers, room = kPendingBytes + (1 << 20) + 3 * kPiece;
  EXPECT_LE(service->stats().commands, 1 + others + room / kPiece);
  std::uint64_t bytes = 0, executed = 0;
  while (executed < kPieces + 1 || bytes < kPieces * kPiece) {
    Event event = stranger.peer.next_event(kPatience);
    ASSERT_NE(event.kind, Event::Kind::kNone);
    ASSERT_NE(event.kind, Event::Kind::kClosed) << event.status.to_string();
    Bytes body = event.data;
    const auto header = datapath::command::take<MessageHeader>(body);
    if (!header) continue;
    if (header->type == static_cast<std::uint8_t>(MessageType::kResult)) bytes += body.size();
    if (header->type == static_cast<std::uint8_t>(MessageType::kReply)) executed = header->sequence;
  }
}

// What is not even posted would be missed by nobody: the session ends and says why.
TEST_P(CommandEnds, MoreThanTheServicesEngineTakesEndsTheSession) {
  constexpr std::uint64_t kPieces = 2000, kPiece = 10 << 10;
  change_server = [](EngineConfig& config) { config.max_posted = 256; };  // results; replies are far fewer
  start({}, 48 << 20, false);
  Stranger stranger(*client, service->listen_address());
  stranger.greet();
  stranger.give(1, 1, allocate(1 << 20));
  stranger.give(2, kPieces, copy_out(kPiece));
  EXPECT_TRUE(comes_true([&] { return service->stats().sessions_ended_wrong == 1; }));
  const Status fate = stranger.fate();
  EXPECT_EQ(fate.code(), Code::kResourceExhausted);
  EXPECT_THAT(fate.message(), HasSubstr("(max_posted)"));
}

TEST_P(CommandEnds, ACommandThatHangsHoldsItsSessionAlone) {
  if (GetParam().where == command::ServiceConfig::Where::kInTurn) {
    GTEST_SKIP() << "in the service's turn all commands are to be short";
  }
  Session second = connect();
  Channel hung = open(second);
  must(hung.load({1}, "gate"));
  const std::uint64_t at_gate = must(hung.launch({{1}}, {}));
  must(hung.load({2}, "nothing"));
  hung.flush();
  EXPECT_TRUE(comes_true([&] { return kernels.signals().entered.load() == 1; }));
  expect_untouched();
  EXPECT_LT(hung.reached(Stage::kExecuted), at_gate);
  EXPECT_EQ(hung.wait(at_gate, Stage::kComplete, std::chrono::milliseconds(1)).code(), Code::kDeadlineExceeded);
  kernels.signals().open.store(true);
  expect_fine(hung);
}

TEST_P(CommandEnds, ASessionWhoseLastCommandRunsIsCounted) {
  if (GetParam().where == command::ServiceConfig::Where::kInTurn) GTEST_SKIP() << "its commands are over when it is";
  if (GetParam().isolated) GTEST_SKIP() << "its process is killed, and with it the command";
  start({.max_sessions = 1});
  Channel hung = open(*session);
  must(hung.load({1}, "gate"));
  must(hung.launch({{1}}, {}));
  hung.flush();
  ASSERT_TRUE(comes_true([&] { return kernels.signals().entered.load() == 1; }));
  session->close();
  ASSERT_TRUE(comes_true([&] { return service->stats().leaving == 1; }));
  EXPECT_EQ(service->stats().sessions, 1u) << "it has its memory and its thread yet";
  const auto begin = [&] { return Session::connect(*client, service->listen_address(), {.patience = kPatience}); };
  const Result<Session> refused = begin();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.error().message(), HasSubstr("has 1 sessions, the limit (max_sessions), and 1 of their clients"));
  kernels.signals().open.store(true);
  EXPECT_TRUE(comes_true([&] { return begin().status().ok(); })) << "what it ran has ended";
  EXPECT_TRUE(comes_true([&] { return service->stats().sessions == 0 && service->stats().leaving == 0; }));
}

TEST(CommandService, WithoutAThreadThereIsNone) {
  EngineConfig config = config_for({"tcp", "tcp"});
  config.listen = "127.0.0.1:0";
  Result<Engine> engine = Engine::create(config);
  ASSERT_TRUE(engine) << engine.error().to_string();
  const test::NoThreads none;
  const auto service = command::Service::start(*std::move(engine), {.executors = command::host_executors({})});
  ASSERT_FALSE(service);
  EXPECT_EQ(service.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(service.error().message(), HasSubstr("no thread for the service"));
}

TEST_P(CommandEnds, WhereThereIsNoThreadASessionIsRefused) {
  if (GetParam().where == command::ServiceConfig::Where::kInTurn) GTEST_SKIP() << "sessions have none";
  Stranger stranger(*client, service->listen_address());
  std::optional<test::NoThreads> none(std::in_place);
  stranger.say(datapath::command::hello_message({.payload_bytes = 4096}));
  const Status fate = stranger.fate();
  none.reset();
  EXPECT_EQ(fate.code(), Code::kResourceExhausted);
  EXPECT_THAT(fate.message(), HasSubstr("no thread for another session"));
  EXPECT_EQ(service->stats().sessions_refused, 1u);
  expect_untouched();
}

TEST_P(CommandEnds, AClientThatGoesInTheMiddleLeavesNothing) {
  if (test::over_memif()) GTEST_SKIP() << "a wire with two ends, and this takes several clients";
  for (int round = 0; round < 3; ++round) {
    {
      EngineConfig config = config_for(GetParam().way);
      put_on_wire(config);
      Result<Engine> engine = Engine::create(config);
      ASSERT_TRUE(engine) << engine.error().to_string();
      Result<Session> gone = Session::connect(*engine, service->listen_address(), {.patience = kPatience});
      ASSERT_TRUE(gone) << gone.error().to_string();
      Channel channel = open(*gone);
      const std::vector<std::byte> bytes(300'000);
      for (std::uint64_t i = 1; i < 40; ++i) {
        must(channel.allocate({i}, bytes.size()));
        must(channel.copy_in({i}, 0, bytes));
      }
      engine->shutdown();
      static_cast<void>(channel.synchronize(kPatience));  // well, if all had been carried out by then
      EXPECT_TRUE(comes_true([&] { return !gone->status().ok(); }));
      EXPECT_FALSE(channel.allocate({100}, 8)) << "the session has ended";
    }
    // A process that was killed does not count down any more.
    EXPECT_TRUE(comes_true([&] { return GetParam().isolated || kernels.signals().executors.load() == 1; }));
    // But for the 64 bytes that each look leaves.
    const auto left = static_cast<std::uint64_t>(round) * 64;
    EXPECT_TRUE(comes_true([&] { return service->tenants().at(0).memory_bytes == left; })) << "what it had is freed";
    expect_untouched();
  }
}

TEST_P(CommandEnds, AProcessThatEndsTakesItsSessionAlone) {
  if (!GetParam().isolated) GTEST_SKIP() << "it would take all with it";
  for (const auto& [kernel, how] : {std::pair{"crash", "signal 9"}, std::pair{"exit", "exit code 7"}}) {
    Session second = connect();
    Channel channel = open(second);
    must(channel.allocate({1}, 1000));
    must(channel.load({1}, kernel));
    must(channel.launch({{1}}, {}));
    must(channel.fill({1}, 0, 1000, 1));
    EXPECT_FALSE(channel.synchronize(kPatience).ok());
    EXPECT_EQ(second.status().code(), Code::kAborted);
    EXPECT_THAT(second.status().message(), HasSubstr(how));
    EXPECT_THAT(second.status().message(), HasSubstr("at command 3 of channel 0"));
    second.close();
    EXPECT_TRUE(comes_true([&] { return service->stats().sessions == 1; }));
    expect_untouched();
  }
  EXPECT_TRUE(comes_true([&] { return service->tenants().at(0).memory_bytes == 2 * 64; })) << "what they had is freed";
  EXPECT_EQ(service->stats().sessions_ended_wrong, 2u);
}

TEST_P(CommandEnds, AProcessHasNoDescriptorOfOurs) {
  if (!GetParam().isolated) GTEST_SKIP() << "a thread has all of them";
  // As of a library that does not mark its own.
  const UniqueFd unmarked(::memfd_create("of another session", 0));
  Session second = connect();
  Channel channel = open(second);
  must(channel.load({1}, "inherits"));
  must(channel.launch({{1}}, {}));
  expect_fine(channel);
}

TEST_P(CommandEnds, AProcessThatHangsEndsWithItsClient) {
  if (!GetParam().isolated) GTEST_SKIP() << "a thread cannot be ended";
  {
    Session second = connect();
    Channel hung = open(second);
    must(hung.allocate({1}, 1000));
    must(hung.load({1}, "gate"));
    must(hung.launch({{1}}, {}));
    hung.flush();
    EXPECT_TRUE(comes_true([&] { return kernels.signals().entered.load() == 1; }));
    expect_untouched();
    second.close();
  }
  EXPECT_TRUE(comes_true([&] { return service->tenants().at(0).memory_bytes == 64; })) << "what it had is freed";
  EXPECT_TRUE(comes_true([&] { return service->stats().sessions == 1; }));
  expect_untouched();
}

TEST_P(CommandEnds, AProgramThatIsNotThereRefusesTheSession) {
  if (!GetParam().isolated) GTEST_SKIP() << "there is no program";
  command::ServiceConfig config;
  for (const auto& [program, words] : {std::pair{"/nowhere/session", "cannot start /nowhere/session: No such file"},
                                       std::pair{"/bin/true", "ended (exit code 0)"}}) {
    start(config, 1 << 20, false, {program});
    const Result<Session> made = Session::connect(*client, service->listen_address(), {.patience = kPatience});
    ASSERT_FALSE(made);
    EXPECT_THAT(made.error().message(), HasSubstr(words));
    EXPECT_TRUE(comes_true([&] { return service->stats().sessions_refused == 1; }));
  }
}

TEST_P(CommandEnds, AServiceThatStopsEndsWaits) {
  Channel channel = open(*session);
  must(channel.load({1}, "nothing"));
  std::thread appending([&] {
    while (channel.launch({{1}}, {})) {
    }
  });
  EXPECT_TRUE(comes_true([&] { return service->stats().commands > 1000; }));
  service->stop();
  appending.join();
  const bool ends_well = channel.synchronize(kPatience).ok();
  EXPECT_EQ(ends_well, channel.reached(Stage::kComplete) == channel.last());  // it may have said so before it stopped
  EXPECT_FALSE(channel.launch({{1}}, {}));
  EXPECT_FALSE(session->status().ok());
  EXPECT_FALSE(channel.recover().ok());
  EXPECT_FALSE(session->open_channel());
  EXPECT_EQ(GetParam().isolated ? 0 : kernels.signals().executors.load(), 0);
}

TEST_P(CommandEnds, WhoIsTurnedAwayIsJudgedOnce) {
  start({.max_sessions = 1});
  Result<Peer> second = client->connect(service->listen_address());
  ASSERT_TRUE(second) << second.error().to_string();
  ASSERT_TRUE(second->wait_ready(kPatience).ok());
  const auto hello = datapath::command::hello_message({.payload_bytes = 4096});
  for (int i = 0; i < 20; ++i) (void)second->send(hello, datapath::command::kMessageValue);
  int refusals = 0;
  for (bool ended = false; !ended;) {
    const Event event = second->next_event(kPatience);
    ASSERT_NE(event.kind, Event::Kind::kNone);
    if (event.kind == Event::Kind::kMessage) ++refusals;
    ended = event.kind == Event::Kind::kClosed;
  }
  EXPECT_EQ(refusals, 1);
  EXPECT_EQ(service->stats().sessions_refused, 1u);
  EXPECT_EQ(service->stats().sessions, 1u);
}

TEST_P(CommandEnds, LimitsOfAServiceAreSaid) {
  start({.max_sessions = 2, .channels = 3, .credits = 64, .payload_credit = 1 << 20}, 1 << 20);
  Session second = connect();
  const Result<Session> third = Session::connect(*client, service->listen_address(), {.patience = kPatience});
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(third.error().message(), HasSubstr("max_sessions"));
  EXPECT_EQ(second.limits().channels, 3u);
  EXPECT_EQ(second.limits().credits, 64u);
  EXPECT_EQ(second.limits().memory_bytes, 1u << 20);
  Channel channel = open(second);
  must(second.open_channel());
  must(second.open_channel());
  EXPECT_EQ(second.open_channel().status().code(), Code::kResourceExhausted);
  must(channel.load({1}, "nothing"));
  for (int i = 0; i < 1000; ++i) must(channel.launch({{1}}, {}));  // waits for credits
  expect_fine(channel);
  must(channel.allocate({1}, 1 << 20));
  must(channel.allocate({2}, 1));
  EXPECT_EQ(channel.synchronize(kPatience).code(), Code::kAborted);
  EXPECT_EQ(channel.failure()->result, command::kOutOfMemory);
  second.close();
  EXPECT_EQ(second.status().code(), Code::kUnavailable);
  EXPECT_FALSE(channel.launch({{1}}, {}));
}

TEST_P(CommandEnds, AHostTakesNoModules) {
  Channel channel = open(*session);
  EXPECT_EQ(session->limits().modules, 0u);
  const std::string image = ".version 8.0";
  const std::uint64_t sequence = must(channel.load_module({1}, std::as_bytes(std::span(image))));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(channel.synchronize(kPatience).code(), Code::kAborted);
    ASSERT_TRUE(channel.failure());
    EXPECT_EQ(channel.failure()->sequence, sequence + 2 * static_cast<unsigned>(i));
    EXPECT_EQ(channel.failure()->result, command::kNotSupported);
    EXPECT_THAT(channel.failure()->text, HasSubstr("takes no modules"));
    ASSERT_TRUE(channel.recover().ok());
    if (i == 0) must(channel.load({2}, {1}, "f", command::layout<command::Pointer>()));
  }
  expect_fine(channel);
  EXPECT_EQ(service->stats().modules_sent, 0u) << "nobody asked for it";
}

TEST_P(CommandEnds, WithoutWaitingThereIsRoomOrThereIsNot) {
  if (GetParam().where == command::ServiceConfig::Where::kInTurn) GTEST_SKIP() << "the gate is a long command";
  Session second = connect({.flush_after = std::chrono::microseconds(0), .wait_for_room = false});
  Channel channel = open(second);
  must(channel.load({1}, "gate"));
  Result<std::uint64_t> appended = channel.launch({{1}}, {});
  std::uint64_t count = 1;
  while (appended) {
    ++count;
    appended = channel.launch({{1}}, {});
  }
  EXPECT_EQ(appended.error().code(), Code::kResourceExhausted);
  EXPECT_GE(count, second.limits().credits);
  kernels.signals().open.store(true);
  expect_fine(channel);
  must(channel.launch({{1}}, {}));
  expect_fine(channel);
}

// A batch that the engine takes for no message would be missed by nobody, and its session wait for it for ever.
TEST_P(CommandEnds, AnEngineWhoseMessagesAreTooSmallForABatchHasNoSession) {
  if (test::over_memif()) GTEST_SKIP() << "a wire with two ends, and this takes several clients";
  EngineConfig config = config_for(GetParam().way);
  put_on_wire(config);
  const command::SessionOptions options{.patience = kPatience, .flush_bytes = 2000};
  constexpr std::size_t kLeast = 16 + 2000 + 8192;
  for (const std::size_t bytes : {std::size_t{1}, kLeast - 1, kLeast}) {
    config.max_message_bytes = bytes;
    Result<Engine> engine = Engine::create(config);
    ASSERT_TRUE(engine) << engine.error().to_string();
    Result<Session> narrow = Session::connect(*engine, service->listen_address(), options);
    ASSERT_EQ(static_cast<bool>(narrow), bytes == kLeast) << bytes;
    if (!narrow) {
      EXPECT_EQ(narrow.error().code(), Code::kInvalidArgument);
      EXPECT_THAT(narrow.error().message(), HasSubstr("max_message_bytes is " + std::to_string(bytes)));
      EXPECT_THAT(narrow.error().message(), HasSubstr("at least " + std::to_string(kLeast)));
      continue;
    }
    Channel channel = open(*narrow);
    const std::vector<std::byte> bytes_in(60'000);
    std::vector<std::byte> bytes_out(60'000);
    must(channel.allocate({1}, bytes_in.size()));
    for (int i = 0; i < 10; ++i) must(channel.copy_in({1}, 0, std::span(bytes_in).first(1000)));
    must(channel.copy_in({1}, 0, bytes_in));
    must(channel.copy_out(bytes_out, {1}, 0));
    for (int i = 0; i < 10; ++i) must(channel.user(0x8001, std::span(bytes_in).first(4096)));
    expect_fine(channel);
  }
}

// Messages that the engine does not even post would leave a gap: the session ends and says why.
TEST_P(CommandEnds, MoreThanTheEngineTakesEndsTheSession) {
  if (test::over_memif()) GTEST_SKIP() << "a wire with two ends, and this takes several clients";
  EngineConfig config = config_for(GetParam().way);
  config.max_posted_bytes = 600;
  put_on_wire(config);
  Result<Engine> engine = Engine::create(config);
  ASSERT_TRUE(engine) << engine.error().to_string();
  Result<Session> narrow = Session::connect(*engine, service->listen_address(), {.patience = kPatience});
  ASSERT_TRUE(narrow) << narrow.error().to_string();
  Channel channel = open(*narrow);
  const std::vector<std::byte> bytes(4000);
  Result<std::uint64_t> appended = channel.user(0x8001, bytes);
  for (int i = 0; i < 100'000 && appended; ++i) appended = channel.user(0x8001, bytes);
  ASSERT_FALSE(appended);
  EXPECT_EQ(appended.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(appended.error().message(), HasSubstr("max_posted_bytes"));
  expect_untouched();
}

TEST_P(CommandEnds, SettingsOutOfRangeAreNamed) {
  const auto refused = [&](command::SessionOptions options, std::string_view words) {
    const Result<Session> made = Session::connect(*client, service->listen_address(), options);
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(made.error().message(), HasSubstr(words));
  };
  refused({.flush_bytes = 1}, "flush_bytes is 1");
  refused({.flush_commands = 0}, "flush_commands is 0");
  refused({.flush_after = std::chrono::microseconds(-1)}, "flush_after is -1");
  std::optional<std::size_t> message_bytes, posted_bytes;
  const auto service_refuses = [&](bool listens, command::ServiceConfig config, std::string_view words) {
    EngineConfig of_engine = config_for(GetParam().way);
    of_engine.transport = "tcp";
    if (listens) of_engine.listen = "127.0.0.1:0";
    if (message_bytes) of_engine.max_message_bytes = *message_bytes;
    if (posted_bytes) of_engine.max_posted_bytes = *posted_bytes;
    Result<Engine> engine = Engine::create(of_engine);
    ASSERT_TRUE(engine);
    const Result<command::Service> made = command::Service::start(std::move(*engine), std::move(config));
    ASSERT_FALSE(made);
    EXPECT_THAT(made.error().message(), HasSubstr(words));
  };
  service_refuses(true, {}, "executors is empty");
  const command::ExecutorFactory host = command::host_executors();
  service_refuses(false, {.executors = host}, "listens nowhere");
  message_bytes = 70'000;
  service_refuses(true, {.executors = host}, "max_message_bytes is 70000, and must be at least 73744");
  message_bytes.reset();
  posted_bytes = 4 << 20;
  service_refuses(true, {.executors = host}, "held_results is 16777216, and the engine's max_posted_bytes 4194304");
  posted_bytes.reset();
  service_refuses(true, {.executors = host, .held_results = 1 << 28}, "max_posted_bytes 268435456");
  service_refuses(true, {.executors = host, .channels = 0}, "channels is 0");
  service_refuses(true, {.executors = host, .credits = 1}, "credits is 1");
  service_refuses(true, {.executors = host, .payload_credit = 1 << 30}, "payload_credit");
}

INSTANTIATE_TEST_SUITE_P(Ways, CommandEnds, testing::ValuesIn(command_ways()),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace fairlead
