// A process that has as many descriptors as it may have, or a few less, until this goes.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

namespace fairlead::test {

class OutOfDescriptors {
 public:
  /// `left`: how many more it may have.
  explicit OutOfDescriptors(int left = 0) {
    const int lowest = ::dup(0);
    ::close(lowest);
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit now{.rlim_cur = static_cast<rlim_t>(lowest + left), .rlim_max = before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &now), 0);
  }
  OutOfDescriptors(const OutOfDescriptors&) = delete;
  OutOfDescriptors& operator=(const OutOfDescriptors&) = delete;
  ~OutOfDescriptors() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }

 private:
  rlimit before_{};
};

}  // namespace fairlead::test
