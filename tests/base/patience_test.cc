#include "base/system/patience.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

namespace fairlead {
namespace {

bool over(const Patience& patience, int wait_ms) {
  pollfd fd{patience.fd(), POLLIN, 0};
  return ::poll(&fd, 1, wait_ms) == 1;
}

TEST(Patience, LastsItsLengthFromWhenItWasPutOff) {
  Patience shortest(std::chrono::milliseconds(1)), longest(std::chrono::hours(1));
  shortest.begin();
  longest.begin();
  EXPECT_TRUE(over(shortest, -1));
  EXPECT_FALSE(over(longest, 0));
  longest.put_off();
  EXPECT_FALSE(over(longest, 0));
  EXPECT_TRUE(over(shortest, 0)) << "it stays over";
  shortest.begin();
  EXPECT_TRUE(over(shortest, -1)) << "and lasts anew";
}

TEST(Patience, OnlyWhoSleepsOnItNeedsIt) {
  Patience patience(std::chrono::hours(1));
  EXPECT_FALSE(patience.slept_on());
  patience.begin();
  EXPECT_TRUE(patience.slept_on());
  patience.end();
  EXPECT_FALSE(patience.slept_on());
}

TEST(Patience, AChildHasNone) {
  const Patience patience(std::chrono::hours(1));
  const pid_t child = ::fork();
  if (child == 0) {
    itimerspec left{};
    ::_exit(::timerfd_gettime(patience.fd(), &left) == 0 ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "what the child put off would be the parent's";
}

}  // namespace
}  // namespace fairlead
