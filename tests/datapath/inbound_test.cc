#include "datapath/flow/inbound.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>

namespace fairlead::datapath {
namespace {

using Verdict = Inbound::Verdict;

PathMessage notify(std::uint64_t sequence, std::uint64_t value = 0) {
  PathMessage message;
  message.type = MessageType::kNotify;
  message.sequence = sequence;
  message.value = value;
  return message;
}

PathMessage fragment(std::uint64_t sequence, std::string_view bytes, std::uint64_t offset, std::uint64_t total) {
  PathMessage message;
  message.type = MessageType::kFragment;
  message.sequence = sequence;
  message.offset = offset;
  message.total = total;
  message.data = std::as_bytes(std::span(bytes));
  return message;
}

std::string text(const Event& event) { return {reinterpret_cast<const char*>(event.data.data()), event.data.size()}; }

class InboundTest : public testing::Test {
 protected:
  Verdict take(const PathMessage& message, std::size_t waiting = 0) {
    event = Event();
    why.clear();
    return inbound.take(message, waiting, event, why);
  }
  std::optional<std::uint64_t> due(std::size_t waiting) {
    const auto consumed = inbound.credit_due(waiting);
    return consumed ? std::optional(consumed->sequence) : std::nullopt;
  }
  /// The peer is told of all but `waiting` events, due or not.
  void tell(std::size_t waiting) { inbound.told(inbound.consumed(waiting)); }

  Inbound inbound{{.events = 8, .bytes = 400, .message_bytes = 100}};
  Event event;
  std::string why;
};

TEST_F(InboundTest, ANotificationIsAnEventAtOnce) {
  EXPECT_EQ(take(notify(1, 42)), Verdict::kEvent);
  EXPECT_EQ(event.kind, Event::Kind::kNotification);
  EXPECT_EQ(event.value, 42U);
  EXPECT_EQ(inbound.received(), 1U);
}

TEST_F(InboundTest, WhatComesAgainIsDropped) {
  EXPECT_EQ(take(notify(1)), Verdict::kEvent);
  EXPECT_EQ(take(notify(2)), Verdict::kEvent);
  for (const std::uint64_t again : {1U, 2U}) EXPECT_EQ(take(notify(again)), Verdict::kDuplicate);
  EXPECT_EQ(inbound.received(), 2U);
  EXPECT_EQ(take(notify(3)), Verdict::kEvent);
}

TEST_F(InboundTest, AGapEndsIt) {
  EXPECT_EQ(take(notify(2)), Verdict::kWrong);
  EXPECT_EQ(why, "message 2 where 1 was due (undelivered: 0, limit 80)");
  EXPECT_EQ(inbound.received(), 0U);
}

TEST_F(InboundTest, MoreThanItsCreditsAndSomeSlackEndIt) {
  EXPECT_EQ(take(notify(1), 80), Verdict::kEvent);
  EXPECT_EQ(take(notify(2), 81), Verdict::kWrong);
  EXPECT_EQ(take(notify(1), 81), Verdict::kDuplicate) << "what comes again waits nowhere";
}

TEST_F(InboundTest, MoreBytesThanItsCreditsAndTwoMessagesEndIt) {
  const std::string large(100, 'x');
  std::uint64_t sequence = 0;
  while (sequence < 7) {
    ++sequence;
    ASSERT_EQ(take(fragment(sequence, large, 0, 100), sequence - 1), Verdict::kEvent);
  }
  EXPECT_EQ(take(fragment(8, large, 0, 100), 7), Verdict::kWrong);
  EXPECT_EQ(why, "message 8 though 700 bytes are undelivered (limit 400)");
  EXPECT_EQ(take(fragment(8, large, 0, 100), 6), Verdict::kEvent) << "one was taken";
}

TEST_F(InboundTest, FragmentsBecomeOneMessage) {
  EXPECT_EQ(take(fragment(1, "zero", 0, 10)), Verdict::kKept);
  EXPECT_EQ(take(fragment(2, "-", 4, 10)), Verdict::kKept);
  EXPECT_EQ(take(fragment(3, "copy!", 5, 10)), Verdict::kEvent);
  EXPECT_EQ(event.kind, Event::Kind::kMessage);
  EXPECT_EQ(text(event), "zero-copy!");
  EXPECT_EQ(take(fragment(4, "whole", 0, 5)), Verdict::kEvent);
  EXPECT_EQ(text(event), "whole");
  EXPECT_EQ(take(fragment(5, "", 0, 0)), Verdict::kEvent);
  EXPECT_EQ(text(event), "");
}

TEST(InboundOfMuch, ALargeMessageIsWhole) {
  constexpr std::size_t kAll = 5 << 20, kPart = 700'001;
  Inbound inbound{{.events = 8, .bytes = kAll, .message_bytes = kAll}};
  std::string sent(kAll, ' ');
  for (std::size_t i = 0; i < kAll; ++i) sent[i] = static_cast<char>(i * 2654435761U >> 24);
  Event event;
  std::string why;
  std::uint64_t sequence = 0;
  for (std::size_t at = 0; at < kAll; at += kPart) {
    const bool last = at + kPart >= kAll;
    ASSERT_EQ(inbound.take(fragment(++sequence, std::string_view(sent).substr(at, kPart), at, kAll), 0, event, why),
              last ? Verdict::kEvent : Verdict::kKept)
        << why;
  }
  EXPECT_TRUE(text(event) == sent);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(InboundOfMuch, WhatIsAnnouncedTakesNoAddresses) {
  constexpr std::uint64_t kAll = std::uint64_t{1} << 30;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  std::ifstream statm("/proc/self/statm");
  std::size_t pages = 0;
  ASSERT_TRUE(statm >> pages);
  rlimit little = before;
  little.rlim_cur = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) + (std::size_t{64} << 20);
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &little), 0);
  Inbound inbound{{.events = 8, .bytes = kAll, .message_bytes = kAll}};
  Event event;
  std::string why;
  EXPECT_EQ(inbound.take(fragment(1, "x", 0, kAll), 0, event, why), Verdict::kKept);
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &before), 0);
}
#endif

TEST_F(InboundTest, NotificationsMayStandBetweenFragments) {
  EXPECT_EQ(take(fragment(1, "ab", 0, 4)), Verdict::kKept);
  EXPECT_EQ(take(notify(2)), Verdict::kEvent);
  EXPECT_EQ(take(fragment(3, "cd", 2, 4)), Verdict::kEvent);
  EXPECT_EQ(text(event), "abcd");
}

TEST_F(InboundTest, ACancelledMessageMakesRoomForTheNext) {
  EXPECT_EQ(take(fragment(1, "never ended", 0, 50)), Verdict::kKept);
  EXPECT_EQ(take(fragment(2, "new", 0, 6)), Verdict::kKept);
  EXPECT_EQ(take(fragment(3, "est", 3, 6)), Verdict::kEvent);
  EXPECT_EQ(text(event), "newest");
}

TEST_F(InboundTest, FragmentsThatDoNotFitEndIt) {
  const struct {
    std::string_view bytes;
    std::uint64_t offset, total;
  } kWrong[] = {
      {"x", 0, 101},                // larger than a message may be
      {"x", 0, ~std::uint64_t{0}},  //
      {"x", 1, 4},                  // not where the last one ended
      {"long", 0, 3},               // longer than the message
      {"", 0, 4},                   // nothing, of something
      {"x", ~std::uint64_t{0}, 4},  //
  };
  for (const auto& each : kWrong) {
    Inbound fresh({.events = 8, .bytes = 400, .message_bytes = 100});
    EXPECT_EQ(fresh.take(fragment(1, each.bytes, each.offset, each.total), 0, event, why), Verdict::kWrong)
        << each.offset << " of " << each.total;
    EXPECT_NE(why.find("limit 100"), std::string::npos) << why;
  }
}

// Else a peer could make it grow for ever: what is left of a message is reckoned from what its parts say.
TEST_F(InboundTest, PartsThatSayOtherThanTheFirstEndIt) {
  ASSERT_EQ(take(fragment(1, "x", 0, 2)), Verdict::kKept);
  EXPECT_EQ(take(fragment(2, std::string(50, 'y'), 1, 0)), Verdict::kWrong) << "less than it has already";
  EXPECT_EQ(why, "50 bytes at 1 of a message of 0 bytes (limit 100), where one of 2 bytes has 1");
}

TEST_F(InboundTest, AMessageKeepsItsSizeAndItsKind) {
  ASSERT_EQ(take(fragment(1, "x", 0, 2)), Verdict::kKept);
  EXPECT_EQ(take(fragment(2, "y", 1, 3)), Verdict::kWrong) << "larger than it was";
  PathMessage other = fragment(3, "y", 1, 2);
  other.type = MessageType::kNotifyFragment;
  EXPECT_EQ(take(other), Verdict::kWrong) << "a message goes on as a notification";
}

TEST_F(InboundTest, AQuarterOfTheCreditsIsToldAtOnce) {
  for (std::uint64_t sequence = 1; sequence <= 3; ++sequence) EXPECT_EQ(take(notify(sequence)), Verdict::kEvent);
  EXPECT_EQ(due(1), 2U) << "two of three were taken, a quarter of 8";
  tell(1);
  EXPECT_EQ(due(0), std::nullopt) << "one was taken since, two make a quarter of 8";
  EXPECT_EQ(take(notify(4)), Verdict::kEvent);
  EXPECT_EQ(due(0), 4U);
}

TEST_F(InboundTest, AQuarterOfTheBytesIsToldAtOnce) {
  inbound = Inbound({.events = 100, .bytes = 400, .message_bytes = 100});
  const std::string ninety(90, 'x');
  EXPECT_EQ(take(fragment(1, ninety, 0, 90), 0), Verdict::kEvent);
  EXPECT_EQ(due(1), std::nullopt);
  EXPECT_EQ(due(0), std::nullopt) << "90 bytes of 400, one event of 100";
  tell(0);
  EXPECT_EQ(take(fragment(2, ninety, 0, 90), 0), Verdict::kEvent);
  EXPECT_EQ(due(0), std::nullopt) << "since it was told last";
  EXPECT_EQ(take(fragment(3, "0123456789", 0, 10), 0), Verdict::kEvent);
  EXPECT_EQ(due(0), 3U);
}

TEST_F(InboundTest, TheBytesOfAMessageAreConsumedWithItsEvent) {
  EXPECT_EQ(take(notify(1), 0), Verdict::kEvent);
  EXPECT_EQ(take(fragment(2, std::string(90, 'a'), 0, 100), 1), Verdict::kKept);
  EXPECT_EQ(take(fragment(3, std::string(10, 'b'), 90, 100), 1), Verdict::kEvent);
  EXPECT_EQ(inbound.credit_due(2), std::nullopt);
  EXPECT_EQ(inbound.credit_due(1), std::nullopt) << "the notification alone is no quarter";
  EXPECT_EQ(inbound.credit_due(0), (Inbound::Consumed{3, 100}));
}

// Else one that is larger than the credits would never be whole.
TEST_F(InboundTest, AMessageBehindWhichNothingWaitsIsConsumedAsItComes) {
  EXPECT_EQ(take(fragment(1, std::string(50, 'a'), 0, 100)), Verdict::kKept);
  EXPECT_EQ(take(fragment(2, std::string(49, 'b'), 50, 100)), Verdict::kKept);
  EXPECT_EQ(inbound.credit_due(0), (Inbound::Consumed{2, 99}));
}

// What was told on a path that died, or behind a refused write, may not have arrived.
TEST(InboundCredits, WhatMayNotHaveArrivedIsToldAgain) {
  Inbound inbound({.events = 3, .bytes = 1, .message_bytes = 0});
  Event event;
  std::string why;
  for (std::uint64_t sequence = 1; sequence <= 3; ++sequence) {
    ASSERT_EQ(inbound.take(notify(sequence), sequence - 1, event, why), Verdict::kEvent);
  }
  inbound.told({3, 0});
  inbound.forget_told();
  ASSERT_EQ(inbound.credit_due(1), (Inbound::Consumed{2, 0})) << "the last is not taken yet";
  inbound.told({2, 0});
  EXPECT_EQ(inbound.credit_due(0), (Inbound::Consumed{3, 0}));
  inbound.told({3, 0});
  inbound.forget_told();
  EXPECT_EQ(inbound.credit_due(0), (Inbound::Consumed{3, 0})) << "also where the path had no room for the word";
}

}  // namespace
}  // namespace fairlead::datapath
