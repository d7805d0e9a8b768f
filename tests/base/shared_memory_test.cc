// Memory that processes share: where it is not to be had the process goes on, and hears why.
#include "base/system/shared_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

namespace fairlead {
namespace {

TEST(SharedMemory, ALimitOfFilesIsNamedAndNoSignal) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit less = before;
  less.rlim_cur = 4096;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &less), 0);
  const auto fits = make_shared_memory("test", 4096), large = make_shared_memory("test", 8192);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_TRUE(fits) << fits.status().to_string();
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(large.error().message(), testing::HasSubstr("raise `ulimit -f`"));
}

}  // namespace
}  // namespace fairlead
