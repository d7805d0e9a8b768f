// Priorities of channels: what runs before what at the service, and what is said of them.
#include <algorithm>
#include <vector>

#include "fed_session.h"

namespace fairlead::datapath::command {
namespace {

using fairlead::command::Call;
using fairlead::command::ParameterKind;

class PrioritySession : public FedSession {
 protected:
  static constexpr std::uint64_t kNote = 1;

  /// A kernel that notes its number.
  void add_kernels(HostExecutorConfig& config) override {
    config.kernels.push_back({"note",
                              {{ParameterKind::kU32}},
                              {},
                              [this](const Call& call) {
                                ran_.push_back(call.u32(0));
                                if (after_each_) after_each_(call.u32(0));
                                return Status();
                              },
                              true});
  }
  [[nodiscard]] bool has_news() const override { return news_; }
  /// No time passes: turns end by what they ran.
  [[nodiscard]] std::chrono::steady_clock::time_point now() override { return now_; }

  void open(std::uint16_t channel, std::int32_t priority) {
    session_->take(channel_message(channel, {.priority = priority}), TrafficClass::kCommands);
  }
  static std::vector<std::byte> note(std::uint32_t number) {
    return record(Opcode::kLaunch, LaunchBody{kNote, {1, 1, 1}, {1, 1, 1}, 0, 4}, std::as_bytes(std::span(&number, 1)));
  }
  static std::vector<std::byte> fence(std::uint16_t channel, std::uint64_t sequence) {
    return record(Opcode::kFence, FenceBody{channel, sequence});
  }
  /// What all channels have before anything else: the function, by channel 15.
  void load_note() {
    give(15, 1, {load(kNote, "note")});
    run();
  }
  /// `count` notes from `first` on.
  void give_notes(std::uint16_t channel, std::uint64_t sequence, std::uint32_t first, std::uint32_t count) {
    std::vector<std::vector<std::byte>> records;
    for (std::uint32_t i = 0; i < count; ++i) records.push_back(note(first + i));
    give(channel, sequence, records);
  }

  std::vector<std::uint32_t> ran_;
  std::function<void(std::uint32_t)> after_each_;
  bool news_ = false;
  const std::chrono::steady_clock::time_point now_ = std::chrono::steady_clock::now();
};

TEST_F(PrioritySession, TheGreaterRunsFirstWhicheverCameFirst) {
  greet();
  load_note();
  open(0, 3);  // below 0, which there is not: it is taken for 0
  open(1, -5);
  open(2, -2);
  give_notes(0, 1, 0, 3);
  give_notes(2, 1, 20, 3);
  give_notes(1, 1, 10, 3);
  run();
  EXPECT_THAT(ran_, testing::ElementsAre(10, 11, 12, 20, 21, 22, 0, 1, 2));
  for (std::uint16_t channel = 0; channel <= 2; ++channel) EXPECT_EQ(replies(channel).executed, 3u);
}

TEST_F(PrioritySession, WhatIsBeyondTheLimitsIsTheNearest) {
  greet();
  load_note();
  open(1, -5);
  open(2, -100);
  open(3, -4);
  give_notes(3, 1, 30, 1);
  give_notes(2, 1, 20, 1);
  give_notes(1, 1, 10, 1);
  run();
  EXPECT_THAT(ran_, testing::ElementsAre(10, 20, 30))
      << "the second is of the same as the first, and was told of later";
}

TEST_F(PrioritySession, OneThatWaitsLetsLowerOnesRunAndGoesOnBeforeTheirNextCommand) {
  greet();
  load_note();
  open(1, -1);
  give(1, 1, {note(100), fence(0, 3), note(101)});
  give_notes(0, 1, 0, 6);
  run();
  EXPECT_THAT(ran_, testing::ElementsAre(100, 0, 1, 2, 101, 3, 4, 5));
}

// However much the lower one has to run, which is more than one look takes.
TEST_F(PrioritySession, OneThatWaitsForLongDoesNotHoldLowerOnes) {
  greet();
  load_note();
  open(1, -1);
  give(1, 1, {fence(0, 1000), note(9999)});
  for (std::uint32_t i = 0; i < 4; ++i) give_notes(0, 1 + 256 * i, 256 * i, 256);
  run();
  ASSERT_EQ(ran_.size(), 1025u);
  EXPECT_EQ(std::ranges::find(ran_, 9999u) - ran_.begin(), 1000);
}

TEST_F(PrioritySession, WhileOneWaitsAllLowerOnesTakeTurns) {
  greet();
  load_note();
  open(1, -1);
  give(1, 1, {fence(0, 1000)});
  give_notes(0, 1, 0, 100);
  give_notes(2, 1, 1000, 100);
  run();
  ASSERT_EQ(ran_.size(), 200u);
  EXPECT_EQ(std::ranges::count_if(ran_.begin(), ran_.begin() + 100, [](std::uint32_t n) { return n >= 1000; }), 50);
}

TEST_F(PrioritySession, WhatComesMeanwhileIsTakenBeforeALowerOnesNextCommand) {
  greet();
  load_note();
  open(1, -1);
  after_each_ = [this](std::uint32_t number) { news_ = number == 4; };
  give_notes(0, 1, 0, 100);
  EXPECT_TRUE(session_->run()) << "there is more to run";
  EXPECT_EQ(ran_.size(), 5u);
  give_notes(1, 1, 1000, 1);
  run();
  ASSERT_EQ(ran_.size(), 101u);
  EXPECT_EQ(ran_[5], 1000u);
}

// News are nothing to who has the greatest priority, nor where all have the same.
TEST_F(PrioritySession, WhoGoesFirstIsNotKeptByWhatComes) {
  greet();
  load_note();
  news_ = true;
  give_notes(0, 1, 0, 100);
  (void)session_->run();
  EXPECT_EQ(ran_.size(), 100u);
}

TEST_F(PrioritySession, ThoseOfOnePriorityRunByTurns) {
  greet();
  load_note();
  open(1, -1);
  open(2, -1);
  give_notes(1, 1, 0, 40);
  give_notes(2, 1, 100, 40);
  // A turn ends after some commands: no time at all.
  std::vector<std::size_t> firsts;
  while (session_->run(now())) firsts.push_back(ran_.size());
  ASSERT_EQ(ran_.size(), 80u);
  const auto second = std::ranges::find_if(ran_, [](std::uint32_t number) { return number >= 100; });
  EXPECT_LT(second - ran_.begin(), 20) << "the second began long before the first was done";
}

TEST_F(PrioritySession, APriorityIsSaidBeforeTheFirstCommand) {
  greet();
  load_note();
  give_notes(0, 1, 0, 1);
  open(0, -1);
  EXPECT_EQ(refusal().code(), Code::kDataLoss);
  EXPECT_THAT(refusal().message(), testing::HasSubstr("channel 0"));
}

TEST_F(PrioritySession, PayloadMayComeBeforeIt) {
  greet();
  give(15, 1, {allocate(7, 4096)});
  run();
  give_payload(0, 1, 4096);
  open(0, -1);
  give(0, 1, {record(Opcode::kCopyIn, CopyBody{7, 0, 4096})});
  run();
  EXPECT_EQ(replies(0).executed, 1u);
  EXPECT_FALSE(replies(0).failure);
}

TEST_F(PrioritySession, AChannelThatThereIsNotIsNotTold) {
  greet({.channels = 4});
  open(4, -1);
  EXPECT_EQ(refusal().code(), Code::kOutOfRange);
}

TEST_F(PrioritySession, WordsThatAreCutShortEndTheSession) {
  greet();
  session_->take(make_message({.type = static_cast<std::uint8_t>(MessageType::kChannel)}), TrafficClass::kCommands);
  EXPECT_EQ(refusal().code(), Code::kDataLoss);
}

TEST_F(PrioritySession, WelcomeSaysWhichThereAreToWhoKnowsThem) {
  const auto welcome = [this](std::uint16_t newest) {
    begin();
    session_->take(hello_message({.newest = newest, .payload_bytes = 4096}, HelloMore{}), TrafficClass::kCommands);
    Bytes body = sent_.back();
    (void)take<MessageHeader>(body);
    EXPECT_EQ(take<Welcome>(body)->version, newest);
    (void)take<WelcomeMore>(body);
    return take<WelcomeLast>(body);
  };
  const auto last = welcome(kChannelVersion);
  ASSERT_TRUE(last);
  EXPECT_EQ(last->least_priority, 0);
  EXPECT_EQ(last->greatest_priority, -5);
  EXPECT_FALSE(welcome(kGraphVersion));
}

}  // namespace
}  // namespace fairlead::datapath::command
