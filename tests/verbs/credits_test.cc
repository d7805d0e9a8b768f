#include "verbs/transport/credits.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <vector>

#include "verbs/transport/message_header.h"

namespace fairlead::verbs {
namespace {

TEST(Credits, OneMessagePerCredit) {
  Credits credits(4, 8, 2, 8);
  EXPECT_TRUE(credits.take_message());
  EXPECT_TRUE(credits.take_message());
  EXPECT_FALSE(credits.take_message());
  EXPECT_TRUE(credits.add({1, 0}));
  EXPECT_TRUE(credits.take_message());
}

TEST(Credits, RefusesMoreThanThePeerHas) {
  Credits credits(4, 8, 2, 8);
  EXPECT_FALSE(credits.add({1, 0}));
  EXPECT_FALSE(credits.add({0, 1}));
  EXPECT_TRUE(credits.take_message());
  EXPECT_FALSE(credits.add({2, 0}));
  EXPECT_FALSE(credits.add({1, 1}));
  EXPECT_EQ(credits.messages(), 1U);
  EXPECT_TRUE(credits.add({1, 0}));
}

TEST(Credits, TheLastControlCreditMustReturnTwo) {
  Credits credits(4, 8, 2, 4);
  EXPECT_TRUE(credits.take_control());
  EXPECT_TRUE(credits.take_control());
  EXPECT_TRUE(credits.take_control());
  EXPECT_FALSE(credits.take_control());
  credits.freed({0, 1});
  EXPECT_FALSE(credits.take_control());
  credits.freed({0, 1});
  EXPECT_TRUE(credits.take_control());
  EXPECT_EQ(credits.take_owed().controls, 2U);
}

TEST(Credits, ReturnsWhenHalfIsOwed) {
  Credits credits(4, 8, 4, 8);
  credits.freed({2, 0});
  EXPECT_FALSE(credits.worth_returning());
  credits.freed({1, 0});
  EXPECT_TRUE(credits.worth_returning());
  EXPECT_EQ(credits.take_owed().messages, 3U);
  EXPECT_FALSE(credits.worth_returning());
  credits.freed({0, 4});
  EXPECT_TRUE(credits.worth_returning());
}

TEST(Credits, ASingleBufferIsReturned) {
  Credits credits(1, 8, 1, 8);
  EXPECT_FALSE(credits.worth_returning());
  credits.freed({1, 0});
  EXPECT_TRUE(credits.worth_returning());
}

// Two ends, random schedules: each has messages to send, the wire delivers in order whenever it likes. However it
// goes, no end may overrun the other's buffers, everything arrives, and afterwards the wire falls silent.
struct SimulatedEnd {
  Credits credits;
  std::uint32_t buffers = 0;  // posted
  int to_send = 0;
  int received = 0;
  std::deque<MessageHeader> wire;  // toward the other end

  bool act() {
    if (to_send > 0 && credits.take_message()) {
      --to_send;
      wire.push_back({MessageType::kMessage, credits.take_owed()});
      return true;
    }
    if (credits.worth_returning() && credits.take_control()) {
      wire.push_back({MessageType::kCredits, credits.take_owed()});
      return true;
    }
    return false;
  }
  void receive(const MessageHeader& header) {
    ASSERT_GT(buffers, 0U) << "no receive buffer: RNR";
    ASSERT_TRUE(credits.add(header.credits));
    // Posted again at once; the schedule delays the arrival instead.
    const bool message = header.type == MessageType::kMessage;
    received += message ? 1 : 0;
    credits.freed({message ? 1U : 0U, message ? 0U : 1U});
  }
};

TEST(Credits, NeverDeadlockNeverOverrunNeverStorm) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    auto pick = [&](std::uint32_t low, std::uint32_t high) {
      return std::uniform_int_distribution<std::uint32_t>(low, high)(random);
    };
    const std::uint32_t messages[2] = {pick(1, 9), pick(1, 9)};
    const std::uint32_t controls[2] = {pick(4, 8), pick(4, 8)};
    SimulatedEnd ends[2];
    int total[2];
    for (int i = 0; i < 2; ++i) {
      ends[i].credits = Credits(messages[i], controls[i], messages[1 - i], controls[1 - i]);
      ends[i].buffers = messages[i] + controls[i];
      total[i] = ends[i].to_send = static_cast<int>(pick(0, 200));
    }
    int idle = 0;
    int steps = 0;
    while (idle < 64 && ++steps < 100000) {
      SimulatedEnd& end = ends[random() % 2];
      SimulatedEnd& other = &end == &ends[0] ? ends[1] : ends[0];
      bool moved = false;
      if (random() % 2 == 0) {
        moved = end.act();
      } else if (!end.wire.empty()) {
        other.receive(end.wire.front());
        end.wire.pop_front();
        moved = true;
      }
      ASSERT_LE(end.wire.size(), std::size_t{messages[0] + controls[0] + messages[1] + controls[1]});
      idle = moved ? 0 : idle + 1;
    }
    ASSERT_LT(steps, 100000) << "credit messages keep each other going, seed " << seed;
    EXPECT_EQ(ends[0].received, total[1]) << "seed " << seed;
    EXPECT_EQ(ends[1].received, total[0]) << "seed " << seed;
  }
}

TEST(MessageHeader, Bytes) {
  std::byte bytes[8];
  write_header(bytes, {MessageType::kMessage, {0x1234, 7}});
  const std::byte expected[8] = {std::byte{1}, std::byte{7}, std::byte{0x12}, std::byte{0x34}};
  EXPECT_TRUE(std::equal(std::begin(bytes), std::end(bytes), expected));
  const auto header = read_header(bytes);
  ASSERT_TRUE(header);
  EXPECT_EQ(header->credits.messages, 0x1234U);
  EXPECT_EQ(header->credits.controls, 7U);
}

TEST(MessageHeader, RefusesWhatIsNotOurs) {
  std::vector<std::byte> bytes(8);
  EXPECT_FALSE(read_header(bytes));  // type 0
  bytes[0] = std::byte{3};
  EXPECT_FALSE(read_header(bytes));
  bytes[0] = std::byte{1};
  EXPECT_TRUE(read_header(bytes));
  bytes[7] = std::byte{1};
  EXPECT_FALSE(read_header(bytes));
  bytes[7] = {};
  EXPECT_FALSE(read_header(std::span(bytes).first(7)));
  bytes[0] = std::byte{2};
  bytes.push_back({});
  EXPECT_FALSE(read_header(bytes));  // a credit message with a payload
}

}  // namespace
}  // namespace fairlead::verbs
