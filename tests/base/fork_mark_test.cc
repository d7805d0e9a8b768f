#include "base/system/fork_mark.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace fairlead {
namespace {

/// Whether it is so in a child, which ends without destructors.
template <typename Question>
bool in_child(const Question& question) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(question() ? 0 : 1);
  int status = -1;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

TEST(ForkMark, IsOfTheProcessThatMadeIt) {
  const ForkMark mark;
  EXPECT_TRUE(mark.is_mine());
  EXPECT_TRUE(in_child([&] { return !mark.is_mine(); }));
  EXPECT_TRUE(in_child([&] { return in_child([&] { return !mark.is_mine(); }); })) << "nor of a child's child";
  EXPECT_TRUE(mark.is_mine()) << "whatever children there were";
}

TEST(ForkMark, AChildMakesItsOwn) {
  ForkMark mark;
  EXPECT_TRUE(in_child([&] {
    const ForkMark own, copy = mark;
    mark = own;
    return own.is_mine() && !copy.is_mine() && mark.is_mine() && in_child([&] { return !own.is_mine(); });
  }));
}

}  // namespace
}  // namespace fairlead
