// Who sleeps is woken for what the other end did, though that tells it only once what was delivered has gone on.
#include <gtest/gtest.h>

#include "tests/readable.h"
#include "tests/shm/end.h"
#include "tests/shm/own_directory.h"

namespace fairlead::shm {
namespace {

/// One end has sent a message, and sleeps; the other has delivered it.
struct ShmWake : testing::Test {
  void meet(bool polled) {
    ends.other.polled = polled;
    ASSERT_TRUE(ends.meet(directory.config()));
    while (ends.one.endpoint->poll() || ends.other.endpoint->poll()) {
    }
    ASSERT_TRUE(ends.one.post(datapath::OpKind::kMessage, 0, 8));
    while (!ends.one.endpoint->arm()) ends.one.endpoint->poll();
    ASSERT_FALSE(is_woken());
    while (ends.other.messages == 0) ends.other.endpoint->poll();
  }
  [[nodiscard]] bool is_woken() const { return readable(ends.one.endpoint->wait_fd()); }

  const OwnDirectory directory;
  Ends ends;
};

TEST_F(ShmWake, WhoDeliveredAMessageWakesItsSenderBeforeItSleeps) {
  meet(true);
  EXPECT_FALSE(is_woken());
  EXPECT_TRUE(ends.other.endpoint->arm());
  EXPECT_TRUE(is_woken());
  ASSERT_TRUE(ends.one.poll_until([&] { return ends.one.codes.size() == 1; }));
  EXPECT_EQ(ends.one.codes.front(), Code::kOk);
}

TEST_F(ShmWake, OrWithWhatItPostsNext) {
  meet(true);
  ASSERT_TRUE(ends.other.post(datapath::OpKind::kMessage, 0, 8));
  EXPECT_TRUE(is_woken());
  ASSERT_TRUE(ends.one.poll_until([&] { return ends.one.codes.size() == 1 && ends.one.messages == 1; }));
}

TEST_F(ShmWake, OrWithItsNextPoll) {
  meet(true);
  ends.other.endpoint->poll();
  EXPECT_TRUE(is_woken());
}

TEST_F(ShmWake, OrWhenItLeaves) {
  meet(true);
  ends.other.endpoint->settle();
  EXPECT_TRUE(is_woken());
}

TEST_F(ShmWake, WhoSleepsIsWokenThoughAnotherPolls) {
  meet(true);
  ends.one.endpoint->poll();
  ASSERT_TRUE(ends.other.post(datapath::OpKind::kMessage, 0, 8));
  EXPECT_TRUE(is_woken());
}

TEST_F(ShmWake, UnlessNobodySleeps) {
  meet(true);
  ends.one.endpoint->disarm();
  ASSERT_TRUE(ends.other.post(datapath::OpKind::kMessage, 0, 8));
  EXPECT_FALSE(is_woken());
}

TEST_F(ShmWake, OrAtOnceWhereNobodyPollsSoon) {
  meet(false);
  EXPECT_TRUE(is_woken());
}

}  // namespace
}  // namespace fairlead::shm
