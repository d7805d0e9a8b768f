// A message that answers another says that this one has ended: when its sender hears of that.
#include <gtest/gtest.h>

#include "tests/shm/end.h"
#include "tests/shm/own_directory.h"

namespace fairlead::shm {
namespace {

constexpr int kPatience = 17;  // polls, and no more, until an end is looked for that no message tells of

struct ShmAnswer : testing::Test {
  ShmAnswer() { one.polled = other.polled = true; }
  void SetUp() override {
    ASSERT_TRUE(ends.meet(directory.config()));
    while (one.endpoint->poll() || other.endpoint->poll()) {
    }
  }
  /// It leaves, and has come.
  void send(End& from, End& to) {
    const std::size_t before = to.messages;
    ASSERT_TRUE(from.post(datapath::OpKind::kMessage, 0, 8));
    to.endpoint->poll();
    ASSERT_EQ(to.messages, before + 1);
  }
  void exchange() {
    send(one, other);
    send(other, one);
  }

  const OwnDirectory directory;
  Ends ends;
  End &one = ends.one, &other = ends.other;
};

TEST_F(ShmAnswer, IsDeliveredBeforeTheEndIsTold) {
  exchange();
  EXPECT_TRUE(one.codes.empty());
  EXPECT_TRUE(one.endpoint->poll());
  EXPECT_EQ(one.codes, std::vector(1, Code::kOk));
}

TEST_F(ShmAnswer, EndsAllThatCameBeforeIt) {
  for (int i = 0; i < 3; ++i) send(one, other);
  send(other, one);
  one.endpoint->poll();
  EXPECT_EQ(one.codes, std::vector(3, Code::kOk));
}

TEST_F(ShmAnswer, MessagesInEachPollKeepNoEndBack) {
  exchange();
  send(other, one);
  EXPECT_EQ(one.codes.size(), 1u);
}

TEST_F(ShmAnswer, WhatNobodyAnswersEndsAllTheSame) {
  for (int i = 0; i < 5; ++i) {  // one learns that it is answered
    exchange();
    one.endpoint->poll();
  }
  ASSERT_EQ(one.codes.size(), 5u);
  send(one, other);
  for (int polls = 0; polls < kPatience && one.codes.size() == 5; ++polls) one.endpoint->poll();
  EXPECT_EQ(one.codes.size(), 6u);
}

TEST_F(ShmAnswer, WhoSleepsIsToldOfTheEndWithoutOne) {
  exchange();
  while (!one.endpoint->arm()) one.endpoint->poll();
  EXPECT_EQ(one.codes.size(), 1u);
}

}  // namespace
}  // namespace fairlead::shm
