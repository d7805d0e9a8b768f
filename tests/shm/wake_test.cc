// Who sleeps is woken for what the other end did, though that tells it only once what was delivered has gone on.
#include <gtest/gtest.h>

#include "tests/readable.h"
#include "tests/shm/end.h"
#include "tests/shm/own_directory.h"

namespace fairlead::shm {
namespace {

TEST(ShmWake, WhoDeliveredAMessageWakesItsSenderBeforeItSleeps) {
  const OwnDirectory directory;
  Ends ends;
  ends.other.polled = true;
  ASSERT_TRUE(ends.meet(directory.config()));
  while (ends.one.endpoint->poll() || ends.other.endpoint->poll()) {
  }
  ASSERT_TRUE(ends.one.post(datapath::OpKind::kMessage, 0, 8));
  while (!ends.one.endpoint->arm()) ends.one.endpoint->poll();
  const int asleep = ends.one.endpoint->wait_fd();
  ASSERT_FALSE(readable(asleep));
  while (ends.other.messages == 0) ends.other.endpoint->poll();
  EXPECT_FALSE(ends.other.endpoint->arm()) << "the sender has yet to be woken";
  ends.other.endpoint->poll();
  EXPECT_TRUE(readable(asleep));
  EXPECT_TRUE(ends.other.endpoint->arm());
  ASSERT_TRUE(ends.one.poll_until([&] { return ends.one.codes.size() == 1; }));
  EXPECT_EQ(ends.one.codes.front(), Code::kOk);
}

TEST(ShmWake, OrWithWhatItPostsNext) {
  const OwnDirectory directory;
  Ends ends;
  ends.other.polled = true;
  ASSERT_TRUE(ends.meet(directory.config()));
  while (ends.one.endpoint->poll() || ends.other.endpoint->poll()) {
  }
  ASSERT_TRUE(ends.one.post(datapath::OpKind::kMessage, 0, 8));
  while (!ends.one.endpoint->arm()) ends.one.endpoint->poll();
  while (ends.other.messages == 0) ends.other.endpoint->poll();
  ASSERT_TRUE(ends.other.post(datapath::OpKind::kMessage, 0, 8));
  EXPECT_TRUE(readable(ends.one.endpoint->wait_fd()));
  ASSERT_TRUE(ends.one.poll_until([&] { return ends.one.codes.size() == 1 && ends.one.messages == 1; }));
}

TEST(ShmWake, OrAtOnceWhereNobodyPollsSoon) {
  const OwnDirectory directory;
  Ends ends;
  ASSERT_TRUE(ends.meet(directory.config()));
  while (ends.one.endpoint->poll() || ends.other.endpoint->poll()) {
  }
  ASSERT_TRUE(ends.one.post(datapath::OpKind::kMessage, 0, 8));
  while (!ends.one.endpoint->arm()) ends.one.endpoint->poll();
  while (ends.other.messages == 0) ends.other.endpoint->poll();
  EXPECT_TRUE(readable(ends.one.endpoint->wait_fd()));
}

}  // namespace
}  // namespace fairlead::shm
