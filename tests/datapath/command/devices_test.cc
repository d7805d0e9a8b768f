// A session of several devices, fed by hand: the host, several times.
#include <gmock/gmock.h>

#include <set>
#include <utility>

#include "tests/datapath/command/fed_session.h"

namespace fairlead::datapath::command {
namespace {

using fairlead::command::Scope;
using testing::HasSubstr;

class Devices : public FedSession {
 protected:
  /// Of a client that may use the devices of `mine`.
  void greet_as(std::uint32_t mine, std::optional<HelloDevices> wish, const Hello& hello = {},
                const HelloMore& range = {}) {
    ServerSession::Terms terms;
    terms.devices = mine;
    begin(terms);
    session_->take(hello_message(hello, range, HelloLast{}, wish), TrafficClass::kCommands);
  }
  void begin_both() {
    greet_as(0b11, HelloDevices{kAllDevices});
    ASSERT_TRUE(session_->is_welcome());
    sent_.clear();
  }
  void tell(std::uint16_t channel, std::uint32_t device) {
    session_->take(channel_message(channel, {.device = device}), TrafficClass::kCommands);
  }
  /// What the welcome says of them.
  std::vector<DeviceFacts> told() {
    Bytes body = sent_.at(0);
    EXPECT_TRUE(is_message(*take<MessageHeader>(body), MessageType::kWelcome));
    body = body.subspan(sizeof(Welcome) + sizeof(WelcomeMore) + sizeof(WelcomeLast) + sizeof(WelcomeKept));
    return take_devices(body).value_or(std::vector<DeviceFacts>());
  }
  static std::vector<std::byte> fence(std::uint64_t channel, std::uint64_t sequence) {
    return record(Opcode::kFence, FenceBody{channel, sequence});
  }
  static std::vector<std::byte> mark() { return record(static_cast<std::uint16_t>(Opcode::kMark), 0, {}); }
};

TEST_F(Devices, AreThoseThatWereWishedForOrTheFirst) {
  const auto numbers = [this] {
    std::vector<std::uint32_t> all;
    for (const DeviceFacts& each : told()) all.push_back(each.facts.number);
    sent_.clear();
    return all;
  };
  greet_as(0b1101, HelloDevices{kAllDevices});
  EXPECT_THAT(numbers(), testing::ElementsAre(0, 2, 3));
  EXPECT_EQ(session_->devices().all, 0b1101u);
  greet_as(0b1100, HelloDevices{kAnyDevice});
  EXPECT_THAT(numbers(), testing::ElementsAre(2));
  greet_as(0b1100, std::nullopt);
  EXPECT_THAT(numbers(), testing::ElementsAre(2)) << "a client that says nothing of them";
  greet_as(0b1111, HelloDevices{0b1010});
  EXPECT_THAT(numbers(), testing::ElementsAre(1, 3));
  greet_as(0b11, HelloDevices{kAllDevices});
  EXPECT_EQ(told()[1].name, "host");
  EXPECT_EQ(told()[1].facts.memory_bytes, 1u << 20);
}

TEST_F(Devices, ThatAreNotThereOrNotTheClientsAreRefused) {
  greet_as(0b101, HelloDevices{0b10});
  EXPECT_FALSE(session_->is_welcome());
  EXPECT_EQ(refusal().code(), Code::kPermissionDenied);
  EXPECT_THAT(refusal().message(), HasSubstr("no device 1 for this client, which may use 0, 2"));
  greet_as(0b101, HelloDevices{std::uint64_t{1} << 40 | 1});
  EXPECT_THAT(refusal().message(), HasSubstr("no device 40 for this client"));
  EXPECT_TRUE(session_->is_over());
}

TEST_F(Devices, OfWhichOneCannotBeHadRefuseTheSessionAndLeaveNothing) {
  greet_as(0b11, HelloDevices{kAllDevices}, {}, {std::uint64_t{2} << 20, 0});
  EXPECT_FALSE(session_->is_welcome());
  EXPECT_THAT(refusal().message(), HasSubstr("device 0: a range of 2097152 bytes; a session has 1 to 1048576"));
}

TEST_F(Devices, AnOlderClientHasOne) {
  greet_as(0b110, HelloDevices{kAllDevices}, {.newest = 5});
  EXPECT_EQ(sent_.at(0).size(), sizeof(MessageHeader) + sizeof(Welcome) + sizeof(WelcomeMore) + sizeof(WelcomeLast));
  EXPECT_EQ(session_->devices().all, 0b10u);
}

TEST_F(Devices, RangesAreApart) {
  greet_as(0b111, HelloDevices{kAllDevices}, {}, {1 << 16, 0});
  std::set<std::uint64_t> bases;
  for (const DeviceFacts& each : told()) {
    EXPECT_EQ(each.facts.range_bytes, 1u << 16);
    for (const std::uint64_t base : bases) {
      EXPECT_GE(std::max(base, each.facts.range_base) - std::min(base, each.facts.range_base), 1u << 16);
    }
    bases.insert(each.facts.range_base);
  }
  EXPECT_EQ(bases.size(), 3u);
}

// Handles, memory and functions are a device's.
TEST_F(Devices, NamesAreEachDevicesOwn) {
  begin_both();
  tell(1, 1);
  give(0, 1, {allocate(7, 64)});
  give(1, 1, {allocate(7, 128), record(Opcode::kFill, FillBody{7, 0, 128, 1})});
  give(0, 2, {record(Opcode::kFill, FillBody{7, 0, 128, 1})});
  run();
  EXPECT_FALSE(replies(1).failure);
  const Reply first = replies(0);
  ASSERT_TRUE(first.failure);
  EXPECT_EQ(first.failure->sequence, 2u);
  EXPECT_THAT(first.failure->text, HasSubstr("which has 64 (on device 0)"));
}

TEST_F(Devices, AChannelOfOneThatThereIsNotEndsTheSession) {
  begin_both();
  tell(3, 2);
  EXPECT_TRUE(session_->is_over());
  EXPECT_THAT(refusal().message(), HasSubstr("channel 3 is to be of device 2, and the session has 2"));
}

TEST_F(Devices, AChannelStaysWhereItsCommandsAre) {
  begin_both();
  give(2, 1, {allocate(1, 8)});
  tell(2, 1);
  EXPECT_THAT(refusal().message(), HasSubstr("told of when it has commands already"));
}

TEST_F(Devices, AFenceWaitsForAnotherDevice) {
  begin_both();
  tell(1, 1);
  give(1, 1, {fence(0, 2), allocate(1, 8)});
  run();
  EXPECT_EQ(replies(1).executed, 0u);
  give(0, 1, {allocate(1, 8), mark()});
  run();
  EXPECT_EQ(replies(0).executed, 2u);
  EXPECT_EQ(replies(1).executed, 2u);
}

TEST_F(Devices, ACircleOfFencesHoldsItselfAndNothingElse) {
  begin_both();
  tell(1, 1);
  tell(2, 1);
  give(0, 1, {fence(1, 2)});
  give(1, 1, {fence(0, 2), mark()});
  give(2, 1, {allocate(1, 8)});
  run();
  EXPECT_EQ(replies(0).executed + replies(1).executed, 0u);
  EXPECT_EQ(replies(2).executed, 1u);
  EXPECT_EQ(session_->devices().due, 0u);
}

// The other device goes on, and who waits for the lost one hears of it.
TEST_F(Devices, AContextThatIsLostIsOneDevices) {
  begin_both();
  tell(1, 1);
  tell(2, 1);
  give(2, 1, {fence(0, 3), allocate(2, 8)});
  give(0, 1, {load(1, "fault"), launch(1), mark()});
  give(1, 1, {allocate(1, 8), record(Opcode::kFill, FillBody{1, 0, 8, 1})});
  run();
  ASSERT_TRUE(replies(0).failure);
  EXPECT_EQ(replies(0).failure->scope, Scope::kContext);
  EXPECT_EQ(replies(0).failure->sequence, 2u);
  EXPECT_THAT(replies(0).failure->text, HasSubstr("(on device 0)"));
  EXPECT_FALSE(replies(1).failure);
  EXPECT_EQ(replies(1).executed, 2u);
  ASSERT_TRUE(replies(2).failure);
  EXPECT_EQ(replies(2).failure->scope, Scope::kStream);
  EXPECT_EQ(replies(2).failure->sequence, 1u);
  // And later, too.
  give(1, 3, {record(Opcode::kRelease, ReleaseBody{1})});
  give(0, 4, {allocate(5, 8)});
  run();
  EXPECT_EQ(replies(1).executed, 3u);
  EXPECT_FALSE(replies(1).failure);
  EXPECT_EQ(session_->counts().failures_by_scope[2], 1u);
}

std::vector<std::byte> copy_across(const CopyAcrossBody& body) { return record(Opcode::kCopyAcross, body); }

TEST_F(Devices, ACopyGoesFromOneToAnother) {
  begin_both();
  tell(1, 1);
  give(0, 1, {allocate(7, 64), record(Opcode::kFill, FillBody{7, 0, 64, 5}), mark()});
  give(1, 1, {allocate(8, 64), fence(0, 3), copy_across({8, 8, 7, 0, 16, 0})});
  give(1, 4, {record(Opcode::kCopyOut, CopyBody{8, 4, 8})});
  run();
  EXPECT_FALSE(replies(1).failure);
  bool came = false;
  for (const auto& message : sent_) {
    Bytes body = message;
    const auto header = take<MessageHeader>(body);
    const auto reply = is_message(*header, MessageType::kReply) ? read_reply(*header, body) : std::nullopt;
    if (!reply || reply->items == 0) continue;
    Bytes data = reply->data;
    const Bytes bytes = take_data(data)->bytes;
    EXPECT_EQ(std::to_integer<int>(bytes[3]), 0);
    EXPECT_EQ(std::to_integer<int>(bytes[4]), 5);
    came = true;
  }
  EXPECT_TRUE(came);
}

TEST_F(Devices, ACopyThatCannotBeNamesBoth) {
  begin_both();
  tell(1, 1);
  const auto fails = [this](std::uint64_t first, const CopyAcrossBody& body, std::string_view words) {
    sent_.clear();
    give(1, first, {copy_across(body)});
    run();
    ASSERT_TRUE(replies(1).failure) << words;
    give(1, first + 1, {record(Opcode::kRecover, RecoverBody{first})});
    EXPECT_EQ(replies(1).failure->scope, Scope::kCommand);
    EXPECT_THAT(replies(1).failure->text, HasSubstr(words));
  };
  give(0, 1, {allocate(7, 64)});
  give(1, 1, {allocate(8, 32)});
  run();
  fails(2, {8, 0, 9, 0, 8, 0}, "a copy of 8 bytes from device 0 to device 1: handle 9 names no allocation");
  fails(4, {9, 0, 7, 0, 8, 0}, "a copy of 8 bytes from device 0 to device 1: handle 9 names no allocation");
  fails(6, {8, 0, 7, 0, 64, 0}, "64 bytes from 0 on of allocation 8, which has 32");
  fails(8, {8, 0, 7, 0, 8, 2}, "8 bytes from device 2; the session has 2 devices");
  fails(10, {8, 0, 7, 0, std::uint64_t{1} << 40, 0}, "one command copies at most");
  fails(12, {8, 0, 7, 60, 8, 0}, "8 bytes from 60 on of allocation 7, which has 64");
  fails(14, {8, 8, 8, 0, 8, 1}, "a copy of 8 bytes from device 1 to device 1: within a device another command copies");
}

TEST_F(Devices, ACopyFromOneThatIsLostFailsAndLeavesTheOther) {
  begin_both();
  tell(1, 1);
  give(0, 1, {allocate(7, 64), load(1, "fault"), launch(1)});
  give(1, 1, {allocate(8, 64)});
  run();
  sent_.clear();
  give(1, 2, {copy_across({8, 0, 7, 0, 8, 0})});
  run();
  ASSERT_TRUE(replies(1).failure);
  EXPECT_EQ(replies(1).failure->scope, Scope::kStream);
  EXPECT_THAT(replies(1).failure->text, HasSubstr("from device 0 to device 1: 'fault' failed"));
  sent_.clear();
  give(1, 3, {record(Opcode::kRecover, RecoverBody{2}), allocate(9, 8)});
  run();
  EXPECT_EQ(replies(1).executed, 4u);
  EXPECT_FALSE(replies(1).failure);
}

// Who runs it looks no more.
TEST_F(Devices, NothingIsDueOfASessionThatEnded) {
  begin_both();
  tell(1, 1);
  give(1, 1, {fence(0, 9)});
  run();
  give(0, 1, {allocate(1, 64)});
  give(2, 1, {record(Opcode::kCopyIn, CopyBody{1, 0, 64})});
  give_payload(2, 2, 64);
  (void)session_->run();
  ASSERT_TRUE(session_->is_over());
  EXPECT_EQ(session_->devices().due, 0u);
}

TEST_F(Devices, ARunIsOfOneDevice) {
  begin_both();
  tell(1, 1);
  give(0, 1, {allocate(1, 8)});
  give(1, 1, {allocate(1, 8)});
  EXPECT_EQ(session_->devices().due, 0b11u);
  (void)session_->run(SessionRunner::Clock::time_point::max(), 1);
  EXPECT_EQ(replies(0).executed, 0u);
  EXPECT_EQ(replies(1).executed, 1u);
  EXPECT_EQ(session_->devices().due, 0b01u);
  EXPECT_FALSE(session_->run(SessionRunner::Clock::time_point::max(), 9)) << "no device of its";
}

}  // namespace
}  // namespace fairlead::datapath::command
