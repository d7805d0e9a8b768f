// A session of two devices of which one is lost: the host twice, which takes modules, and says what it is told to of
// how far it is.
#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fairlead/executor_around.h"
#include "tests/datapath/command/fed_session.h"

namespace fairlead::datapath::command {
namespace {

using fairlead::command::Outcome;
using fairlead::command::Scope;

/// What the next executors are.
struct Nature {
  bool late = false;                           // works by itself
  std::uint64_t complete = 0;                  // how far such a one is
  Outcome lost{};                              // such a one's context, by and by
  Outcome reads{};                             // of what is copied out of it
  bool ends_at_work = false;                   // it writes what it copies out when it is destroyed, and not before
  std::vector<std::span<std::byte>> copies{};  // of such ones
};

class Directed final : public fairlead::command::ExecutorAround {
 public:
  Directed(std::unique_ptr<fairlead::command::Executor> host, Nature& nature)
      : ExecutorAround(std::move(host)), nature_(nature), late_(nature.late), ends_at_work_(nature.ends_at_work) {}
  ~Directed() override {
    if (!ends_at_work_) return;
    for (const std::span<std::byte> to : nature_.copies) std::ranges::fill(to, std::byte{7});
  }
  [[nodiscard]] fairlead::command::ExecutorLimits limits() const override {
    fairlead::command::ExecutorLimits limits = inner().limits();
    limits.modules = 4;
    return limits;
  }
  Outcome load_module(fairlead::command::Handle, Bytes) override { return {}; }
  [[nodiscard]] bool is_asynchronous() const noexcept override { return late_; }
  fairlead::command::Progress progress(std::uint32_t) override { return {nature_.complete, nature_.lost}; }
  Outcome copy_out(std::span<std::byte> to, fairlead::command::Handle from, std::uint64_t offset) override {
    if (ends_at_work_) nature_.copies.push_back(to);
    if (!nature_.reads.ok()) return nature_.reads;
    return ExecutorAround::copy_out(to, from, offset);
  }

 private:
  Nature& nature_;
  const bool late_, ends_at_work_;
};

/// Channels 0 and 1 are of the first device, channel 2 is of the other.
class LostDevice : public FedSession {
 protected:
  void begin_both(bool late) {
    nature_.late = late;
    ServerSession::Terms terms;
    terms.devices = 0b11;
    begin(terms);
    session_->take(hello_message({}, HelloMore{}, HelloLast{}, HelloDevices{kAllDevices}), TrafficClass::kCommands);
    ASSERT_TRUE(session_->is_welcome());
    session_->take(channel_message(2, {.device = 1}), TrafficClass::kCommands);
  }
  std::unique_ptr<fairlead::command::Executor> make_executor() override {
    return std::make_unique<Directed>(FedSession::make_executor(), nature_);
  }
  std::vector<std::byte> module(const std::string& image) {
    const Bytes bytes = std::as_bytes(std::span(image));
    return record(Opcode::kModule, ModuleBody{1, bytes.size(), *sha256_of(bytes)});
  }
  void give_image(std::uint16_t channel, const std::string& image) {
    std::vector<std::byte> message = make_message({static_cast<std::uint8_t>(MessageType::kImage), 0, channel, 1, 1});
    put(message, ImageBody{0});
    const Bytes bytes = std::as_bytes(std::span(image));
    message.insert(message.end(), bytes.begin(), bytes.end());
    session_->take(std::move(message), TrafficClass::kBulk);
  }
  /// How often an image of that channel's was asked for.
  std::size_t wanted(std::uint16_t channel) {
    std::size_t count = 0;
    for (const auto& message : sent_) {
      Bytes body = message;
      const auto header = take<MessageHeader>(body);
      if (is_message(*header, MessageType::kWanted) && header->channel == channel) ++count;
    }
    return count;
  }

  Nature nature_;
};

// Who waits there for something else has nothing under way, and is failed all the same.
TEST_F(LostDevice, IsDueWhereAnotherFindsItLost) {
  begin_both(true);
  give(0, 1, {record(Opcode::kFence, FenceBody{1, 3})});
  give(1, 1, {allocate(7, 64)});
  give(2, 1, {allocate(8, 64), record(Opcode::kCopyAcross, CopyAcrossBody{8, 0, 7, 0, 64, 0})});
  run();
  EXPECT_EQ(replies(0).executed, 0u);
  EXPECT_EQ(replies(2).executed, 1u);
  nature_.lost = {fairlead::command::kIllegalAddress, Scope::kContext, "lost"};
  (void)session_->run(SessionRunner::Clock::time_point::max(), 1);
  EXPECT_EQ(session_->devices().due & 0b01, 0b01u);
  run();
  ASSERT_TRUE(replies(0).failure);
  EXPECT_EQ(replies(0).failure->scope, Scope::kContext);
}

// No channel is of the device that a copy finds to be lost: it has no order of channels yet.
TEST_F(LostDevice, IsFoundByACopyWhereNoChannelIsOfIt) {
  nature_.reads = {fairlead::command::kIllegalAddress, Scope::kContext, "lost"};
  ServerSession::Terms terms;
  terms.devices = 0b111;
  begin(terms);
  session_->take(hello_message({}, HelloMore{}, HelloLast{}, HelloDevices{kAllDevices}), TrafficClass::kCommands);
  ASSERT_TRUE(session_->is_welcome());
  give(0, 1, {allocate(8, 64), record(Opcode::kCopyAcross, CopyAcrossBody{8, 0, 7, 0, 64, 2})});
  give(1, 1, {allocate(9, 64)});
  run();
  ASSERT_TRUE(replies(0).failure);
  EXPECT_EQ(replies(1).executed, 1u);
  EXPECT_FALSE(replies(1).failure);
}

TEST_F(LostDevice, KeepsNoOthersImageFromComing) {
  begin_both(false);
  give(0, 1, {module("one")});
  give(2, 1, {module("other")});
  run();
  EXPECT_EQ(wanted(0), 1u);
  EXPECT_EQ(wanted(2), 0u);
  give(1, 1, {load(1, "fault"), launch(1)});
  run();
  EXPECT_EQ(replies(0).executed, 1u);
  EXPECT_EQ(wanted(2), 1u);
  give_image(0, "one");  // it was on its way
  give_image(2, "other");
  run();
  EXPECT_FALSE(session_->is_over());
  EXPECT_EQ(replies(2).executed, 1u);
}

// Of a session that has ended the device is at work on what came before.
TEST_F(LostDevice, MayWriteWhatItCopiesOutUntilItIsDestroyed) {
  nature_.ends_at_work = true;
  begin_both(true);
  give(0, 1, {allocate(7, 4096), record(Opcode::kCopyOut, CopyBody{7, 0, 4096})});
  give(2, 1, {allocate(8, 64), record(Opcode::kCopyAcross, CopyAcrossBody{8, 0, 7, 0, 64, 0})});
  run();
  ASSERT_EQ(nature_.copies.size(), 2u) << "to the client, and to the other device";
  session_->take({std::byte{1}}, TrafficClass::kCommands);
  ASSERT_TRUE(session_->is_over());
  EXPECT_EQ(session_->waiting(), 0u);
  session_.reset();
  EXPECT_EQ(nature_.copies.size(), 2u);
}

// And where none is lost.
TEST_F(LostDevice, WhatCompletesAtOnceComesInRepliesOfTheUsualSize) {
  begin_both(true);
  constexpr std::uint64_t kCopies = 500;
  const std::vector<std::vector<std::byte>> copies(kCopies, record(Opcode::kCopyOut, CopyBody{7, 0, kMaxInline}));
  give(0, 1, {allocate(7, kMaxInline)});
  give(0, 2, copies);
  run();
  EXPECT_EQ(replies(0).executed, 1 + kCopies);
  nature_.complete = 1 + kCopies;
  (void)session_->run(SessionRunner::Clock::time_point::max(), 0);
  std::uint64_t items = 0;
  for (const auto& message : sent_) {
    Bytes body = message;
    const auto header = take<MessageHeader>(body);
    if (!is_message(*header, MessageType::kReply) || header->channel != 0) continue;
    items += read_reply(*header, body)->items;
    EXPECT_LT(message.size(), kReplyBytes + 2 * kMaxInline);
  }
  EXPECT_EQ(items, kCopies);
}

TEST_F(LostDevice, ImagesOfTwoDevicesTakeTurns) {
  begin_both(false);
  give(0, 1, {module("one")});
  give(2, 1, {module("other")});
  run();
  EXPECT_EQ(wanted(2), 0u);
  give_image(0, "one");
  (void)session_->run();
  EXPECT_EQ(replies(0).executed, 1u);
  EXPECT_EQ(session_->devices().due, 0b10u);
  run();
  EXPECT_EQ(wanted(2), 1u);
}

}  // namespace
}  // namespace fairlead::datapath::command
