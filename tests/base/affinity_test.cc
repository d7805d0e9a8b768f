#include "base/system/affinity.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sched.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/index_list.h"
#include "base/system/other_core.h"

namespace fairlead {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Affinity, IsReadBackAsItWasSet) {
  std::thread thread([] {
    const std::vector<unsigned> before = affinity_of(::pthread_self());
    ASSERT_FALSE(before.empty());
    const unsigned one = before.back();
    ASSERT_TRUE(set_affinity(::pthread_self(), {&one, 1}).ok());
    EXPECT_THAT(affinity_of(::pthread_self()), ElementsAre(one));
    {
      const ElsewhereMeanwhile elsewhere(before);
      EXPECT_EQ(affinity_of(::pthread_self()), before);
      std::thread([&before] { EXPECT_EQ(affinity_of(::pthread_self()), before); }).join();
    }
    EXPECT_THAT(affinity_of(::pthread_self()), ElementsAre(one));
    const ElsewhereMeanwhile nowhere({});
    EXPECT_THAT(affinity_of(::pthread_self()), ElementsAre(one));
  });
  thread.join();
}

TEST(Affinity, SaysWhichCpuIsNone) {
  const std::vector<unsigned> before = affinity_of(::pthread_self());
  const unsigned none = 4095;
  const Status refused = set_affinity(::pthread_self(), {&none, 1});
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("CPU 4095"));
  EXPECT_EQ(affinity_of(::pthread_self()), before);
}

class OtherCore : public testing::Test {
 protected:
  void SetUp() override {
    root_ = (std::filesystem::temp_directory_path() / "fairlead-cores-XXXXXX").string();
    ASSERT_NE(::mkdtemp(root_.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  /// Whichever CPU asks, `sharers` share its last cache.
  void let_share(std::string_view sharers) const {
    for (const unsigned cpu : affinity_of(::pthread_self())) {
      const std::string caches = fmt::format("{}/sys/devices/system/cpu/cpu{}/cache", root_, cpu);
      for (const char* index : {"index0", "index3"}) std::filesystem::create_directories(caches + "/" + index);
      std::ofstream(caches + "/index0/shared_cpu_list") << cpu << "\n";
      std::ofstream(caches + "/index3/shared_cpu_list") << sharers << "\n";
    }
  }

  std::string root_;
};

TEST_F(OtherCore, IsOneThatSharesTheLastCache) {
  const std::vector<unsigned> before = affinity_of(::pthread_self());
  if (before.size() < 2) GTEST_SKIP() << "one CPU";
  std::thread([&] {
    const std::array<unsigned, 2> two{before[0], before[1]};
    ASSERT_TRUE(set_affinity(::pthread_self(), two).ok());
    let_share(to_index_list(before));
    for (std::size_t i = 0; i < 20; ++i) {
      // Where this thread is when it asks is only sure of one that may be nowhere else.
      const unsigned here = two[i % 2];
      ASSERT_TRUE(set_affinity(::pthread_self(), {&here, 1}).ok());
      EXPECT_FALSE(leave_core(root_.c_str())) << "it may be nowhere else";
      EXPECT_EQ(::sched_getcpu(), static_cast<int>(here));
      ASSERT_TRUE(set_affinity(::pthread_self(), two).ok());
      EXPECT_TRUE(leave_core(root_.c_str()));
      EXPECT_THAT(affinity_of(::pthread_self()), ElementsAre(two[0], two[1])) << "it may be where it might be before";
    }
  }).join();
}

TEST_F(OtherCore, IsNotOneOfAnotherCache) {
  const std::vector<unsigned> before = affinity_of(::pthread_self());
  EXPECT_FALSE(leave_core(root_.c_str())) << "nothing is said of caches";
  for (const char* others : {"1000-1001", "4000-4001", "0-", "x", "3-1", ",", "1023-1024"}) {
    SCOPED_TRACE(others);
    let_share(others);
    EXPECT_FALSE(leave_core(root_.c_str()));
  }
  let_share(std::string(600, '1'));
  EXPECT_FALSE(leave_core(root_.c_str()));
  EXPECT_EQ(affinity_of(::pthread_self()), before);
}

}  // namespace
}  // namespace fairlead
