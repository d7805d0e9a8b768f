// When the peer hears that its requests have ended: at once, in an answer, or one advance() later; and always.
#include <gtest/gtest.h>

#include "shm/responder.h"
#include "tests/shm/half.h"

namespace fairlead::shm {
namespace {

constexpr std::size_t kTurn = std::size_t{1} << 20;

TEST(ShmAnswerHabit, ExpectsWhatHappenedAFewTimesInARow) {
  AnswerHabit habit;
  for (std::uint32_t i = 0; i < AnswerHabit::kLeast; ++i) {
    EXPECT_FALSE(habit.expects_answer());
    habit.learn(true);
  }
  EXPECT_TRUE(habit.expects_answer());
}

TEST(ShmAnswerHabit, EachWrongGuessIsFollowedByALongerTimeWithoutOne) {
  AnswerHabit habit;
  std::uint32_t before = 0;
  for (int guess = 0; guess < 20; ++guess) {
    std::uint32_t needed = 0;
    for (; !habit.expects_answer(); ++needed) habit.learn(true);
    EXPECT_EQ(needed, before == 0 ? AnswerHabit::kLeast : std::min(2 * before, AnswerHabit::kMost));
    before = needed;
    habit.learn(false);
    EXPECT_FALSE(habit.expects_answer());
  }
  for (std::uint32_t i = 0; i < 16 * AnswerHabit::kMost; ++i) habit.learn(true);
  habit.learn(false);  // after so many, as at first but for this one
  for (std::uint32_t i = 0; i < 2 * AnswerHabit::kLeast; ++i) habit.learn(true);
  EXPECT_TRUE(habit.expects_answer());
}

class ShmEnds : public testing::Test, public Half {
 protected:
  ShmEnds() { responder_.start(&own->requests[0], &own->responses[1], &own->sides[0], &own->sides[1], true); }

  /// A message comes, and is delivered.
  void take_message() {
    push({.kind = SlotKind::kMessage});
    ++sent_;
    advance();
    ASSERT_EQ(told.messages.size(), sent_);
  }
  void advance() { ASSERT_EQ(responder_.advance(told, kTurn).reason, ""); }
  /// A request of ours goes out.
  void answer() { responder_.note_said(responder_.ended()); }
  void get_into_the_habit() {
    for (std::uint32_t i = 0; i <= AnswerHabit::kLeast; ++i) {
      take_message();
      answer();
      advance();
    }
  }
  std::uint64_t in_the_line() const { return peers->sides[1].answered.ended; }

  datapath::GrantTable grants_;
  datapath::GrantReader reader_{grants_};
  PulledReads reads_;
  Responder responder_{memory, given, reader_, reads_, 0};
  std::size_t sent_ = 0;
};

TEST_F(ShmEnds, WhoDoesNotAnswerTellsAtOnce) {
  for (int i = 0; i < 1000; ++i) {
    take_message();
    ASSERT_EQ(in_the_line(), sent_);
    advance();
  }
}

TEST_F(ShmEnds, AnAnswerThatIsExpectedLeavesTheLineWhereItIs) {
  get_into_the_habit();
  const std::uint64_t before = in_the_line();
  (void)responder_.take_news();
  for (int i = 0; i < 10; ++i) {
    take_message();
    EXPECT_TRUE(responder_.has_work()) << "who sleeps now leaves the peer without an end";
    EXPECT_FALSE(responder_.is_still());
    answer();
    advance();
    EXPECT_FALSE(responder_.has_work());
    EXPECT_TRUE(responder_.is_still());
  }
  EXPECT_EQ(in_the_line(), before);
  EXPECT_FALSE(responder_.take_news());
}

TEST_F(ShmEnds, AnAnswerThatDoesNotComeIsWaitedForUntilTheNextAdvance) {
  get_into_the_habit();
  take_message();
  EXPECT_LT(in_the_line(), sent_);
  (void)responder_.take_news();
  advance();
  EXPECT_EQ(in_the_line(), sent_);
  EXPECT_TRUE(responder_.take_news()) << "a peer that sleeps is woken";
  take_message();
  EXPECT_EQ(in_the_line(), sent_) << "and the next one is not waited for";
}

TEST_F(ShmEnds, AnAnswerThatSaysLessThanAllIsNone) {
  get_into_the_habit();
  take_message();
  const std::uint64_t said = responder_.ended();
  push({.kind = SlotKind::kMessage});
  ++sent_;
  responder_.note_said(said);  // before that one was taken
  advance();
  advance();
  EXPECT_EQ(in_the_line(), sent_);
}

TEST_F(ShmEnds, WhoeverStopsHasTold) {
  get_into_the_habit();
  take_message();
  EXPECT_LT(in_the_line(), sent_);
  responder_.publish();
  responder_.stop();
  EXPECT_EQ(in_the_line(), sent_);
}

TEST_F(ShmEnds, RoomIsToldOfBeforeItIsScarce) {
  get_into_the_habit();
  for (std::size_t i = 0; i < 10 * Requests::kSlots; ++i) {
    ASSERT_TRUE(out.has_room(0));
    take_message();
    answer();
    advance();
    ASSERT_LE(sent_ - peers->sides[1].answered.requests.slots, Requests::kSlots / 8);
  }
  // Messages that lie beside the slots, of any size, to a producer that never has more than one under way.
  const std::vector<std::byte> bytes(kMaxPiece, std::byte{3});
  for (std::uint16_t size = 49; size < kMaxPiece; size = static_cast<std::uint16_t>(size + 173)) {
    ASSERT_TRUE(out.has_room(size));
    push({.kind = SlotKind::kMessage, .bytes = size}, bytes.data());
    advance();
    answer();
    advance();
  }
}

TEST_F(ShmEnds, AFullRingIsEmptiedToTheLastPiece) {
  get_into_the_habit();
  const std::vector<std::byte> bytes(kMaxPiece, std::byte{3});
  for (int round = 0; round < 50; ++round) {
    while (out.has_room(kMaxPiece)) push({.kind = SlotKind::kMessage, .bytes = kMaxPiece}, bytes.data());
    advance();
    answer();
    advance();
    ASSERT_TRUE(out.has_room(kMaxPiece)) << "nothing is left to be consumed, and nobody would tell of more";
  }
}

}  // namespace
}  // namespace fairlead::shm
