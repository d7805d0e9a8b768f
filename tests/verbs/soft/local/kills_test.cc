// Two processes move long messages by reference, and one is killed or stopped in the middle, again and again: what
// arrived is right, what is open ends as verbs says, nobody hangs, and nothing is left.
//
// FAIRLEAD_SOFT_KILLS: how often (default 8).
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "tests/verbs/soft/local/busy_pair.h"

namespace fairlead::soft::test {
namespace {

using std::chrono::microseconds;
using std::chrono::steady_clock;

constexpr std::uint8_t kShort = 13, kLong = 19;  // timeouts: 34 ms, 2.1 s
constexpr auto kPatience = std::chrono::seconds(60);

int times() {
  const char* const wanted = std::getenv("FAIRLEAD_SOFT_KILLS");
  return wanted == nullptr ? 8 : std::max(1, std::atoi(wanted));
}

/// What the process has: descriptors, and memory that it shares with other devices.
struct Has {
  Has() {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    descriptors = std::distance(begin(all), end(all));
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) rings += line.find("fairlead-roce") != std::string::npos ? 1 : 0;
  }
  std::ptrdiff_t descriptors = 0, rings = 0;
  friend bool operator==(const Has&, const Has&) = default;
};

template <typename Done>
bool run(BusyEnd& end, Done done) {
  for (const auto until = steady_clock::now() + kPatience; !done(); end.step()) {
    if (steady_clock::now() > until) return false;
  }
  return true;
}

class LocalKills : public testing::Test {
 protected:
  microseconds some(int most_us) { return microseconds(std::uniform_int_distribution<int>(0, most_us)(random_)); }
  /// Both have got something.
  static bool is_under_way(const OtherProcessEnd& other) {
    return other.page().seats[0].exchanged > 3 && other.page().seats[1].exchanged > 3;
  }
  std::mt19937 random_{20'26};
};

TEST_F(LocalKills, InTheMiddleEndWithTheRightErrorAndLeaveNothing) {
  std::uint64_t referred = 0;
  for (int kill = 0; kill < times(); ++kill) {
    const Has before;
    {
      OtherProcessEnd other(kShort, 1);
      BusyEnd end(other.page(), 0);
      ASSERT_TRUE(end.connect(kShort, 1));
      ASSERT_TRUE(run(end, [&] { return is_under_way(other) || end.failed() != IBV_WC_SUCCESS; }));
      std::thread killer([&other, after = some(3000)] {
        std::this_thread::sleep_for(after);
        other.signal(SIGKILL);
      });
      const bool ended = run(end, [&] { return end.failed() != IBV_WC_SUCCESS && end.is_idle(); });
      killer.join();
      ASSERT_TRUE(ended && run(end, [&] { return end.has_no_receives(); })) << kill;
      EXPECT_EQ(end.failed(), IBV_WC_RETRY_EXC_ERR) << kill;
      EXPECT_EQ(end.wrong(), "") << kill;
      EXPECT_EQ(end.end().state(), IBV_QPS_ERR);
      EXPECT_TRUE(end.is_source_intact());
      referred += end.end().counter("sent_by_reference");
      EXPECT_EQ(other.wait(), SIGKILL);
    }
    ASSERT_EQ(Has(), before) << kill;
  }
  EXPECT_GT(referred, 0U);
}

TEST_F(LocalKills, WhoIsStoppedForAWhileLosesNothing) {
  OtherProcessEnd other(kLong, 7);
  BusyEnd end(other.page(), 0);
  ASSERT_TRUE(end.connect(kLong, 7));
  for (int stop = 0; stop < 4 * times(); ++stop) {
    const std::uint64_t before = end.exchanged();
    ASSERT_TRUE(run(end, [&] { return end.exchanged() > before + 3 || !end.wrong().empty(); })) << stop;
    std::thread stopper([&other, after = some(2000), time = some(5000)] {
      std::this_thread::sleep_for(after);
      other.signal(SIGSTOP);
      std::this_thread::sleep_for(time);
      other.signal(SIGCONT);
    });
    const auto until = steady_clock::now() + some(9000);
    EXPECT_TRUE(run(end, [&] { return steady_clock::now() > until; }));
    stopper.join();
    ASSERT_EQ(end.wrong(), "") << stop;
    ASSERT_EQ(end.failed(), IBV_WC_SUCCESS) << stop;
  }
  other.page().ends = true;
  ASSERT_TRUE(run(end, [&] { return end.is_idle() && other.page().seats[1].idle; }));
  EXPECT_EQ(end.end().state(), IBV_QPS_RTS);
  EXPECT_GT(end.end().counter("sent_by_reference"), 0U);
  EXPECT_GT(end.end().counter("rcvd_by_reference"), 0U);
  other.page().seats[0].taken = false;
  EXPECT_EQ(other.wait(), 0) << "all that it got was right, too";
}

TEST_F(LocalKills, AStoppedPeerKeepsNobodyFromGivingUpMemoryAndQueuePairs) {
  for (int stop = 0; stop < times(); ++stop) {
    const Has before;
    {
      OtherProcessEnd other(kLong, 7);
      BusyEnd end(other.page(), 0);
      ASSERT_TRUE(end.connect(kLong, 7));
      ASSERT_TRUE(run(end, [&] { return is_under_way(other); }));
      std::thread stopper([&other, after = some(2000)] {
        std::this_thread::sleep_for(after);
        other.signal(SIGSTOP);
      });
      const auto until = steady_clock::now() + some(3000);
      EXPECT_TRUE(run(end, [&] { return steady_clock::now() > until; }));
      stopper.join();
      Endpoint& own = end.end();
      EXPECT_EQ(end.wrong(), "");
      other.page().ends = true;
      if (stop % 2 == 0) {  // memory first, whose requests then fail here
        EXPECT_EQ(api().dereg_mr(std::exchange(own.mr, nullptr)), 0);
        EXPECT_EQ(own.to_state(IBV_QPS_ERR), 0);
        EXPECT_TRUE(run(end, [&] { return end.is_idle() && end.has_no_receives(); }));
      } else {
        EXPECT_EQ(api().destroy_qp(std::exchange(own.qp, nullptr)), 0);
      }
      EXPECT_TRUE(end.is_source_intact());
    }
    ASSERT_EQ(Has(), before) << stop;
  }
}

}  // namespace
}  // namespace fairlead::soft::test
