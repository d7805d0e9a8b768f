// Command channels without an engine: bytes on the wire, and a session of the service that is fed by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "tests/datapath/command/fed_session.h"

namespace fairlead::datapath::command {
namespace {

using fairlead::command::Failure;
using fairlead::command::Scope;
using testing::HasSubstr;

std::string hex(Bytes bytes) {
  std::string text;
  for (const std::byte b : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[static_cast<unsigned>(b) >> 4];
    text += kDigits[static_cast<unsigned>(b) & 15];
  }
  return text;
}

// ---- bytes ---------------------------------------------------------------------------------------------------------

TEST(CommandCodec, BytesOfTheGreeting) {
  EXPECT_EQ(hex(hello_message({.oldest = 1, .newest = 2, .payload_bytes = 0x100000})),
            "01000000000000000000000000000000"
            "0100020000001000");
  EXPECT_EQ(hex(hello_message({.oldest = 1, .newest = 3, .payload_bytes = 0x100000}, HelloMore{0x10000, 0x7f00})),
            "01000000000000000000000000000000"
            "0100030000001000"
            "0000010000000000"
            "007f000000000000");
  EXPECT_EQ(hex(Bytes(welcome_message({}, WelcomeMore{1, 2, 3, 4, 5})).last(sizeof(WelcomeMore))),
            "01000000"
            "02000000"
            "0300000000000000"
            "0400000000000000"
            "0500000000000000");
  EXPECT_EQ(hex(Bytes(welcome_message({}, WelcomeMore{}, WelcomeLast{0, -5})).last(sizeof(WelcomeLast))),
            "00000000"
            "fbffffff");
  EXPECT_EQ(hex(channel_message(7, {.priority = -2})),
            "0a000700000000000000000000000000"
            "feffffff00000000");
  EXPECT_EQ(hex(refused_message({Code::kVersionMismatch, "no"})),
            "03000000000000000000000000000000"
            "0e00020000000000"
            "6e6f000000000000");
}

TEST(CommandCodec, BytesOfAReply) {
  std::vector<std::byte> items;
  put_data(items, 5, std::as_bytes(std::span("abc", 3)));
  const Reply reply{7, 9, 7, Failure{6, Scope::kStream, 700, "bad"}, items, 1};
  const std::vector<std::byte> message = reply_message(3, reply);
  EXPECT_EQ(hex(message),
            "05000300010000000700000000000000"
            "0900000000000000"
            "0700000000000000"
            "0100000000000000"
            "0600000000000000"
            "bc020000"
            "0100"
            "0300"
            "6261640000000000"
            "0500000000000000"
            "0300000000000000"
            "6162630000000000");
  Bytes body = message;
  const auto header = take<MessageHeader>(body);
  ASSERT_TRUE(header);
  const std::optional<Reply> read = read_reply(*header, body);
  ASSERT_TRUE(read && read->failure);
  EXPECT_EQ(read->executed, 7u);
  EXPECT_EQ(read->accepted, 9u);
  EXPECT_EQ(read->failure->sequence, 6u);
  EXPECT_EQ(read->failure->scope, Scope::kStream);
  EXPECT_EQ(read->failure->result, 700);
  EXPECT_EQ(read->failure->text, "bad");
  Bytes data = read->data;
  const std::optional<ReplyData> item = take_data(data);
  ASSERT_TRUE(item);
  EXPECT_EQ(item->sequence, 5u);
  EXPECT_EQ(hex(item->bytes), "616263");
  EXPECT_FALSE(take_data(data));
  for (std::size_t length = sizeof(MessageHeader); length < message.size(); ++length) {
    Bytes cut = Bytes(message).first(length).subspan(sizeof(MessageHeader));
    const std::optional<Reply> part = read_reply(*header, cut);
    if (!part) continue;
    Bytes rest = part->data;
    EXPECT_FALSE(take_data(rest)) << length;
  }
}

TEST(CommandCodec, BytesOfALaunch) {
  const LaunchBody body{0x11, {1, 2, 3}, {4, 5, 6}, 7, 4};
  const std::vector<std::byte> bytes = record(Opcode::kLaunch, body, std::as_bytes(std::span("wxyz", 4)));
  EXPECT_EQ(hex(bytes),
            "0800"
            "0000"
            "38000000"
            "1100000000000000"
            "010000000200000003000000"
            "040000000500000006000000"
            "07000000"
            "04000000"
            "7778797a00000000");
  Bytes rest = bytes;
  const std::optional<Record> read = take_record(rest);
  ASSERT_TRUE(read);
  EXPECT_TRUE(rest.empty());
  EXPECT_TRUE(read->is(Opcode::kLaunch));
  EXPECT_TRUE(is_well_formed(*read));
  EXPECT_EQ(hex(tail_of(*read)), "7778797a");
}

TEST(CommandCodec, BytesOfAModuleAndOfItsFunction) {
  ModuleBody module{0x11, 3, {}};
  module.sha256[0] = std::byte{0xba};
  module.sha256[31] = std::byte{0xad};
  EXPECT_EQ(hex(record(Opcode::kModule, module, {}, kMustKnow)),
            "0c00"
            "0100"
            "38000000"
            "1100000000000000"
            "0300000000000000"
            "ba000000000000000000000000000000000000000000000000000000000000ad");
  std::vector<std::byte> tail;
  put(tail, ParameterItem{16, 8, kPointerItem});
  put(tail, ParameterItem{4, 4, 0});
  const Bytes name = std::as_bytes(std::span("add", 3));
  tail.insert(tail.end(), name.begin(), name.end());
  const std::vector<std::byte> bytes = record(Opcode::kLoadFrom, LoadFromBody{0x22, 0x11, 2, 3}, tail);
  EXPECT_EQ(hex(bytes),
            "0d00"
            "0000"
            "38000000"
            "2200000000000000"
            "1100000000000000"
            "02000000"
            "03000000"
            "1000000008000100"
            "0400000004000000"
            "6164640000000000");
  Bytes rest = bytes;
  const std::optional<Record> read = take_record(rest);
  ASSERT_TRUE(read && is_well_formed(*read));
  EXPECT_EQ(hex(tail_of(*read)), "10000000080001000400000004000000616464");
}

TEST(CommandCodec, BytesOfAGraphAndOfItsLaunch) {
  const std::vector<std::byte> one = record(Opcode::kFill, FillBody{0x11, 2, 3, 4});
  const std::vector<std::byte> bytes = record(Opcode::kGraph, GraphBody{0x22, one.size(), 1}, one, kInline | kMustKnow);
  EXPECT_EQ(hex(bytes),
            "0e00"
            "0300"
            "48000000"
            "2200000000000000"
            "2800000000000000"
            "0100000000000000"
            "03000000"
            "28000000"
            "1100000000000000"
            "0200000000000000"
            "0300000000000000"
            "0400000000000000");
  Bytes rest = bytes;
  const std::optional<Record> read = take_record(rest);
  ASSERT_TRUE(read && is_well_formed(*read));
  EXPECT_EQ(hex(tail_of(*read)), hex(one));
  EXPECT_EQ(hex(record(Opcode::kLaunchGraph, GraphHandleBody{0x22}, {}, kMustKnow)),
            "0f00"
            "0100"
            "10000000"
            "2200000000000000")
      << "16 bytes, however many commands it has";
}

TEST(CommandCodec, RecordsThatAreCutShortAreNone) {
  const std::vector<std::byte> whole = record(Opcode::kCopyOut, CopyBody{1, 2, 3});
  for (std::size_t length = 0; length < whole.size(); ++length) {
    Bytes rest = Bytes(whole).first(length);
    EXPECT_FALSE(take_record(rest)) << length;
  }
  for (const std::uint32_t length : {0u, 4u, 7u, 9u, 12u, 40u, 0xffff'fff8u}) {
    std::vector<std::byte> bytes = whole;
    const RecordHeader header{5, 0, length};
    std::memcpy(bytes.data(), &header, sizeof header);
    Bytes rest = bytes;
    EXPECT_FALSE(take_record(rest)) << length;
  }
}

TEST(CommandCodec, BodiesThatDoNotHoldWhatTheySayAreMalformed) {
  const auto is_fine = [](const std::vector<std::byte>& bytes) {
    Bytes rest = bytes;
    const std::optional<Record> read = take_record(rest);
    return read && is_well_formed(*read);
  };
  for (const Opcode opcode :
       {Opcode::kAllocate, Opcode::kRelease, Opcode::kFill, Opcode::kCopyIn, Opcode::kCopyOut, Opcode::kCopyWithin,
        Opcode::kLoad, Opcode::kLaunch, Opcode::kFence, Opcode::kRecover, Opcode::kModule, Opcode::kLoadFrom,
        Opcode::kGraph, Opcode::kLaunchGraph, Opcode::kReleaseGraph, Opcode::kAllocateAt}) {
    EXPECT_FALSE(is_fine(record(static_cast<std::uint16_t>(opcode), 0, {}))) << static_cast<int>(opcode);
  }
  EXPECT_TRUE(is_fine(record(static_cast<std::uint16_t>(Opcode::kMark), 0, {})));
  const std::vector<std::byte> big(5000);
  LaunchBody launch{1, {1, 1, 1}, {1, 1, 1}, 0, 4096};
  EXPECT_TRUE(is_fine(record(Opcode::kLaunch, launch, Bytes(big).first(4096))));
  launch.parameter_bytes = 4097;
  EXPECT_FALSE(is_fine(record(Opcode::kLaunch, launch, Bytes(big).first(4100)))) << "past 4 KiB";
  launch.parameter_bytes = 16;
  EXPECT_FALSE(is_fine(record(Opcode::kLaunch, launch, Bytes(big).first(8)))) << "more than there are";
  launch.parameter_bytes = 0xffff'ffff;
  EXPECT_FALSE(is_fine(record(Opcode::kLaunch, launch)));
  EXPECT_FALSE(is_fine(record(Opcode::kLoad, LoadBody{1, ~std::uint64_t{0}})));
  EXPECT_TRUE(is_fine(record(Opcode::kLoadFrom, LoadFromBody{1, 2, 256, 1024}, Bytes(big).first(256 * 8 + 1024))));
  EXPECT_FALSE(is_fine(record(Opcode::kLoadFrom, LoadFromBody{1, 2, 257, 0}, Bytes(big).first(257 * 8))));
  EXPECT_FALSE(is_fine(record(Opcode::kLoadFrom, LoadFromBody{1, 2, 0, 1025}, Bytes(big).first(1032))));
  EXPECT_FALSE(is_fine(record(Opcode::kLoadFrom, LoadFromBody{1, 2, 2, 4}, Bytes(big).first(16))));
  EXPECT_FALSE(is_fine(record(Opcode::kLoadFrom, LoadFromBody{1, 2, 0xffff'ffff, 0xffff'ffff})));
  EXPECT_FALSE(is_fine(record(Opcode::kCopyIn, CopyBody{1, 0, 1025}, Bytes(big).first(1032), kInline)));
  EXPECT_TRUE(is_fine(record(Opcode::kCopyIn, CopyBody{1, 0, 1024}, Bytes(big).first(1024), kInline)));
  EXPECT_TRUE(is_fine(record(Opcode::kGraph, GraphBody{1, 1024, 5}, Bytes(big).first(1024), kInline)));
  EXPECT_FALSE(is_fine(record(Opcode::kGraph, GraphBody{1, 1025, 5}, Bytes(big).first(1032), kInline)));
  EXPECT_FALSE(is_fine(record(Opcode::kGraph, GraphBody{1, 9, 5}, Bytes(big).first(8), kInline)));
  EXPECT_TRUE(is_fine(record(Opcode::kGraph, GraphBody{1, 9, 5})));
  EXPECT_TRUE(is_fine(record(200, 0, Bytes(big).first(24)))) << "what nobody knows is skipped by its length";
}

// ---- a session -----------------------------------------------------------------------------------------------------

using CommandSession = FedSession;

TEST_F(CommandSession, VersionsAreNegotiated) {
  begin();
  session_->take(hello_message({.oldest = 1, .newest = 900, .payload_bytes = 4096}), TrafficClass::kCommands);
  Bytes body = sent_.back();
  ASSERT_EQ(take<MessageHeader>(body)->type, static_cast<std::uint8_t>(MessageType::kWelcome));
  const auto welcome = take<Welcome>(body);
  ASSERT_TRUE(welcome);
  EXPECT_EQ(welcome->version, kNewestVersion);
  EXPECT_EQ(welcome->payload_bytes, 4096u);
  EXPECT_EQ(welcome->memory_bytes, 1u << 20);
  begin();
  session_->take(hello_message({.oldest = 1, .newest = 1}), TrafficClass::kCommands);
  body = Bytes(sent_.back()).subspan(sizeof(MessageHeader));
  EXPECT_EQ(take<Welcome>(body)->version, 1) << "a device that is done when it returns is nothing new";
  EXPECT_TRUE(body.empty()) << "what came later is not said";
  begin();
  session_->take(hello_message({.oldest = kNewestVersion + 1, .newest = 9}), TrafficClass::kCommands);
  EXPECT_TRUE(session_->is_over());
  EXPECT_EQ(refusal().code(), Code::kVersionMismatch);
  begin();
  give(0, 1, {allocate(1, 8)});
  EXPECT_THAT(refusal().message(), HasSubstr("begins with a hello"));
}

TEST_F(CommandSession, AReplyComesWhenThereIsNothingLeftToRun) {
  greet();
  give(0, 1, {allocate(1, 8), load(2, "nothing"), launch(2)});
  run();
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(replies(0).executed, 3u);
  std::vector<std::vector<std::byte>> many(500, launch(2));
  give(0, 4, many);
  run();
  EXPECT_EQ(replies(0).executed, 503u);
  EXPECT_GE(sent_.size(), 1u + 500 / 64);
  EXPECT_EQ(session_->counts().commands, 503u);
}

TEST_F(CommandSession, UnknownRecordsAreSkippedByTheirLength) {
  greet();
  const std::vector<std::byte> body(40);
  give(0, 1, {record(77, 0, body), allocate(1, 8), record(77, kMustKnow, body), allocate(2, 8)});
  run();
  EXPECT_EQ(session_->counts().skipped_unknown, 1u);
  const Reply end = replies(0);
  ASSERT_TRUE(end.failure);
  EXPECT_EQ(end.failure->sequence, 3u);
  EXPECT_EQ(end.failure->result, fairlead::command::kNotSupported);
}

TEST_F(CommandSession, NothingRunsAfterAFailureUntilItIsRecoveredFrom) {
  greet();
  give(0, 1,
       {allocate(1, 8), allocate(1, 8), allocate(2, 8), record(Opcode::kRecover, RecoverBody{3}),
        record(Opcode::kRecover, RecoverBody{2}), record(Opcode::kRelease, ReleaseBody{2})});
  run();
  const Reply end = replies(0);
  EXPECT_EQ(end.executed, 6u);
  ASSERT_TRUE(end.failure);
  EXPECT_EQ(end.failure->sequence, 6u) << "2 was not allocated";
  EXPECT_EQ(session_->counts().failures, 3u) << "the second allocation, the wrong recovery, the release";
}

TEST_F(CommandSession, AFaultLosesTheContext) {
  greet();
  give(0, 1, {load(1, "fault"), launch(1), allocate(1, 8)});
  give(1, 1, {allocate(2, 8)});
  run();
  give(1, 2, {record(Opcode::kRecover, RecoverBody{1})});
  run();
  const Reply first = replies(0), second = replies(1);
  ASSERT_TRUE(first.failure && second.failure);
  EXPECT_EQ(first.failure->sequence, 2u);
  EXPECT_EQ(first.failure->scope, Scope::kContext);
  EXPECT_THAT(first.failure->text, HasSubstr("a fault"));
  EXPECT_EQ(second.failure->sequence, 1u);
  EXPECT_EQ(second.failure->scope, Scope::kContext);
  EXPECT_EQ(second.executed, 2u) << "what is passed over is counted";
}

// A channel that stood at a failure of its own hears of the context's once it goes on: else what it sends then would be
// passed over without a word.
TEST_F(CommandSession, AChannelThatRecoversHearsThatTheContextWasLostMeanwhile) {
  greet();
  give(0, 1, {allocate(1, 8), allocate(1, 8)});
  give(1, 1, {load(1, "fault"), launch(1)});
  run();
  ASSERT_TRUE(replies(0).failure && replies(1).failure);
  EXPECT_EQ(replies(0).failure->scope, Scope::kCommand);
  EXPECT_EQ(replies(1).failure->scope, Scope::kContext);
  give(0, 3, {record(Opcode::kRecover, RecoverBody{2}), allocate(2, 8)});
  run();
  EXPECT_EQ(replies(0).executed, 4u);
  EXPECT_EQ(replies(0).failure->scope, Scope::kContext);
  EXPECT_EQ(replies(0).failure->sequence, 3u);
}

TEST_F(CommandSession, FencesWaitForAnotherChannelAndFailWithIt) {
  greet();
  give(1, 1, {record(Opcode::kFence, FenceBody{0, 2}), allocate(5, 8)});
  run();
  EXPECT_EQ(replies(1).executed, 0u) << "the channel it waits for has nothing yet";
  give(0, 1, {allocate(1, 8), record(static_cast<std::uint16_t>(Opcode::kMark), 0, {})});
  run();
  EXPECT_EQ(replies(1).executed, 2u);
  EXPECT_FALSE(replies(1).failure);
  give(0, 3, {allocate(1, 8), record(static_cast<std::uint16_t>(Opcode::kMark), 0, {})});
  give(1, 3, {record(Opcode::kFence, FenceBody{0, 4})});
  give(2, 1, {record(Opcode::kFence, FenceBody{2, 9})});
  give(3, 1, {record(Opcode::kFence, FenceBody{999, 9})});
  run();
  ASSERT_TRUE(replies(1).failure);
  EXPECT_EQ(replies(1).failure->sequence, 3u);
  EXPECT_EQ(replies(1).failure->scope, Scope::kStream);
  ASSERT_TRUE(replies(2).failure && replies(3).failure);
  EXPECT_EQ(replies(2).failure->scope, Scope::kCommand) << "on itself";
  EXPECT_EQ(replies(3).failure->scope, Scope::kCommand) << "on none";
  // A mark that was passed over stays so when its channel goes on.
  give(0, 5, {record(Opcode::kRecover, RecoverBody{3}), record(static_cast<std::uint16_t>(Opcode::kMark), 0, {})});
  give(4, 1, {record(Opcode::kFence, FenceBody{0, 4})});
  give(5, 1, {record(Opcode::kFence, FenceBody{0, 6})});
  run();
  EXPECT_TRUE(replies(4).failure);
  EXPECT_FALSE(replies(5).failure);
  EXPECT_EQ(replies(5).executed, 1u);
}

TEST_F(CommandSession, WhereTimeRunsOutTheNextChannelIsFirst) {
  greet();
  const auto mark = record(static_cast<std::uint16_t>(Opcode::kMark), 0, {});
  give(0, 1, std::vector(100, mark));
  give(7, 1, std::vector(3, mark));
  give(15, 1, std::vector(3, mark));
  for (int i = 0; i < 7; ++i) EXPECT_TRUE(session_->run({})) << "no time, so one command each time";
  EXPECT_EQ(replies(0).executed, 3u);
  EXPECT_EQ(replies(7).executed, 2u);
  EXPECT_EQ(replies(15).executed, 2u);
  for (int i = 0; i < 12; ++i) EXPECT_TRUE(session_->run({}));
  EXPECT_EQ(replies(0).executed, 13u) << "those that have no more are passed over";
  EXPECT_EQ(replies(7).executed, 3u);
  EXPECT_EQ(replies(15).executed, 3u);
}

TEST_F(CommandSession, PayloadMayComeBeforeItsCommandAndAfterIt) {
  greet();
  give(0, 1, {allocate(1, 4096), record(Opcode::kCopyIn, CopyBody{1, 0, 2000})});
  run();
  EXPECT_EQ(replies(0).executed, 1u);
  give_payload(0, 2, 2000);
  give_payload(0, 3, 2000);
  give(0, 3, {record(Opcode::kCopyIn, CopyBody{1, 100, 2000}), record(Opcode::kCopyIn, CopyBody{1, 0, 2000})});
  give_payload(0, 4, 1999);
  run();
  ASSERT_TRUE(replies(0).failure);
  EXPECT_EQ(replies(0).failure->sequence, 4u) << "one byte is missing";
  give(0, 5, {record(Opcode::kCopyIn, CopyBody{1, 0, 2000})});
  run();
  give_payload(0, 5, 2000);  // of a command that was passed over
  give(0, 6,
       {record(Opcode::kRecover, RecoverBody{4}), record(Opcode::kCopyIn, CopyBody{1, 0, 2000}),
        record(Opcode::kCopyIn, CopyBody{1, 0, 2000})});
  run();
  EXPECT_EQ(replies(0).executed, 6u);
  give_payload(0, 8, 2000);
  run();
  EXPECT_TRUE(session_->is_over());
  EXPECT_THAT(refusal().message(), HasSubstr("command 7 of channel 0 takes bytes that were not sent"));
}

TEST_F(CommandSession, BytesThatNobodyTakesHoldTheCommands) {
  ServerSession::Terms terms;
  terms.held_results = 64 << 10;
  greet(terms);
  give(0, 1, {allocate(1, 4096), record(Opcode::kCopyOut, CopyBody{1, 0, 4096})});
  untaken_ = (64 << 10) - 4095;
  run();
  EXPECT_TRUE(session_->is_held());
  EXPECT_EQ(replies(0).executed, 1u);
  untaken_ = 64 << 10;
  give(1, 1, {allocate(2, 8)});
  run();
  EXPECT_EQ(replies(1).executed, 0u) << "replies are not taken either";
  untaken_ = 0;
  run();
  EXPECT_FALSE(session_->is_held());
  EXPECT_EQ(replies(0).executed, 2u);
  EXPECT_EQ(replies(1).executed, 1u);
}

TEST_F(CommandSession, WhatBreaksTheProtocolEndsItWithAReason) {
  const std::vector<std::byte> stub(8);
  const auto raw = [this](MessageHeader header, std::size_t more, TrafficClass traffic = TrafficClass::kCommands) {
    std::vector<std::byte> message = make_message(header);
    message.resize(message.size() + more);
    session_->take(std::move(message), traffic);
  };
  const auto kType = static_cast<std::uint8_t>(MessageType::kCommands);
  const std::vector<std::pair<std::function<void()>, std::string>> cases{
      {[&] { session_->take({}, TrafficClass::kCommands); }, "0 bytes is none of ours"},
      {[&] { session_->take(std::vector<std::byte>(15), TrafficClass::kCommands); }, "15 bytes is none of ours"},
      {[&] { raw({.type = 99}, 0); }, "type 99"},
      {[&] { session_->take(hello_message({}), TrafficClass::kCommands); }, "type 1 has no place"},
      {[&] { raw({.type = kType, .channel = 16, .count = 1, .sequence = 1}, 8); }, "channel 16 of 16"},
      {[&] { raw({.type = kType, .count = 0, .sequence = 1}, 8); }, "0 commands"},
      {[&] { give(0, 2, {allocate(1, 8)}); }, "1 commands from 2 on"},
      {[&] { raw({.type = kType, .count = 1, .sequence = 1}, 4); }, "command 1 of channel 0 is malformed"},
      {[&] { raw({.type = kType, .count = 2, .sequence = 1}, 8); }, "command 1 of channel 0 is malformed"},
      {[&] { give(0, 1, {allocate(1, 8), stub}); }, "command 2 of channel 0 is malformed"},
      {[&] { raw({.type = kType, .count = 70'000, .sequence = 1}, 8); }, "credits"},
      {[&] { give_payload(0, 1, 2 << 20); }, "in one piece"},
      {[&] { give_payload(0, 2049, 0); }, "payload for command 2049 of channel 0, of which 0 have run, and 2048 more"},
      {[&] { give_payload(0, ~std::uint64_t{0}, 0); }, "payload for command 18446744073709551615"},
      {[&] {
         give_payload(0, 2048, 0);
         give_payload(0, 2048, 0);
       },
       "payload for command 2048 of channel 0 behind that for a later one, or twice"},
      {[&] { raw({.type = kType, .count = 1, .sequence = 1}, 8, TrafficClass::kBulk); }, "no place here"},
  };
  for (const auto& [does, says] : cases) {
    greet();
    does();
    EXPECT_TRUE(session_->is_over()) << says;
    EXPECT_THAT(refusal().message(), HasSubstr(says));
    sent_.clear();
    give(0, 1, {allocate(1, 8)});
    run();
    EXPECT_TRUE(sent_.empty()) << "nothing more is said";
  }
}

TEST_F(CommandSession, CreditsBoundWhatIsKept) {
  greet();
  give(1, 1, {record(Opcode::kFence, FenceBody{0, 1})});  // which never comes
  const std::vector<std::vector<std::byte>> batch(256, allocate(1, 8));
  for (std::uint64_t first = 2; !session_->is_over() && first < 100'000; first += 256) {
    give(1, first, batch);
    run();
  }
  EXPECT_TRUE(session_->is_over());
  EXPECT_EQ(refusal().code(), Code::kResourceExhausted);
  greet();
  for (std::uint64_t i = 1; !session_->is_over() && i < 1000; ++i) give_payload(0, i, 1 << 20);
  EXPECT_EQ(refusal().code(), Code::kResourceExhausted);
}

}  // namespace
}  // namespace fairlead::datapath::command
