// Repeats and their spread, when operations are due, and what a busy machine says of itself.
#include "bench/net/measured.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include "bench/base/host_load.h"
#include "bench/net/course.h"
#include "bench/net/pace.h"

namespace fairlead::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(SpreadOf, IsThatOfStudent) {
  EXPECT_EQ(spread_of({}).count, 0U);
  const double one[] = {5};
  EXPECT_EQ(spread_of(one).low, 5);
  EXPECT_EQ(spread_of(one).high, 5);
  const double values[] = {1, 2, 3, 4, 5};
  const Spread spread = spread_of(values);
  EXPECT_EQ(spread.mean, 3);
  EXPECT_NEAR(spread.deviation, 1.5811, 1e-4);
  EXPECT_NEAR(spread.high, 3 + 2.776 * 1.5811 / 2.2361, 1e-3);
  EXPECT_NEAR(spread.low, 3 - 2.776 * 1.5811 / 2.2361, 1e-3);
}

TEST(SpreadOf, HoldsTheMeanAsOftenAsItSays) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> noise(10, 2);
  for (const std::size_t count : {3UL, 10UL, 50UL}) {
    unsigned held = 0;
    for (unsigned trial = 0; trial < 2000; ++trial) {
      std::vector<double> values(count);
      for (double& value : values) value = noise(random);
      const Spread spread = spread_of(values);
      held += spread.low <= 10 && 10 <= spread.high ? 1U : 0U;
    }
    EXPECT_NEAR(held, 1900, 40) << count;  // four standard deviations
  }
}

TEST(HistogramMerge, IsOneHistogramOfBoth) {
  Histogram a, b, both;
  std::mt19937_64 random(1);
  for (int i = 0; i < 10'000; ++i) {
    const std::uint64_t value = random() % 1'000'000;
    (i % 3 == 0 ? a : b).record(value);
    both.record(value);
  }
  a.merge(b);
  EXPECT_EQ(a.count(), both.count());
  EXPECT_EQ(a.min(), both.min());
  EXPECT_EQ(a.max(), both.max());
  for (const double percent : {0.0, 50.0, 90.0, 99.0, 99.9, 100.0})
    EXPECT_EQ(a.percentile(percent), both.percentile(percent));
  Histogram empty;
  a.merge(empty);
  EXPECT_EQ(a.count(), both.count());
  empty.merge(a);
  EXPECT_EQ(empty.min(), both.min());
}

TEST(Pace, EachOperationHasItsOwnTime) {
  const Pace::Time begin{};
  const Pace pace(1000, begin);
  EXPECT_TRUE(pace.paced());
  EXPECT_EQ(pace.due(0), begin);
  EXPECT_EQ(pace.due(1), begin + std::chrono::milliseconds(1));
  EXPECT_EQ(pace.due(86'400'000), begin + std::chrono::hours(24));  // nothing adds up
  EXPECT_FALSE(Pace(0, begin).paced());
  EXPECT_EQ(Pace(0, begin).due(7), begin);
  EXPECT_EQ(Pace(1000, begin, 0.25).due(1), begin + std::chrono::microseconds(1250));
}

TEST(Telling, TellsEachIntervalOnce) {
  std::vector<std::uint64_t> told;
  Plan plan;
  plan.interval = 1;
  plan.tell = [&](const Interval& interval) {
    EXPECT_LT(interval.from, interval.to);
    told.push_back(interval.operations);
  };
  Telling telling(plan);
  const auto now = std::chrono::steady_clock::now();
  using std::chrono::milliseconds;
  telling.look(10, now + milliseconds(500));
  EXPECT_THAT(told, IsEmpty());
  telling.look(30, now + milliseconds(1100));
  telling.look(31, now + milliseconds(1200));
  telling.look(70, now + milliseconds(3600));  // two are over; one report for both
  telling.look(71, now + milliseconds(3700));
  EXPECT_THAT(told, ElementsAre(30, 40));
  telling.rest(75, now + milliseconds(3800));
  telling.rest(75, now + milliseconds(3900));
  EXPECT_THAT(told, ElementsAre(30, 40, 5));
  Plan silent;
  Telling(silent).look(1, now + std::chrono::hours(1));
  Telling(silent).rest(1, now + std::chrono::hours(1));
}

TEST(Course, TheFirstThatEndsWhenTimeIsOverIsTheLastThatCounts) {
  std::uint64_t told = 0;
  Plan plan;
  plan.interval = 1;
  plan.tell = [&](const Interval& interval) { told += interval.operations; };
  Course course = Course::timed(plan, 3600, 0);
  const auto before = course.begin() + std::chrono::seconds(1), after = course.end() + std::chrono::seconds(1);
  EXPECT_FALSE(course.is_over(16, before));
  course.ended(1, before);
  EXPECT_TRUE(course.counts());
  EXPECT_TRUE(course.is_over(17, after));
  course.ended(2, after);
  EXPECT_FALSE(course.counts());
  for (std::uint64_t late = 3; late <= 17; ++late) course.ended(late, after);
  course.close();
  EXPECT_EQ(course.counted(), 2U);
  EXPECT_EQ(course.late(), 15U);
  EXPECT_EQ(told, 2U);
}

TEST(Course, OfOperationsEndsWithTheLastOfThem) {
  const Plan plan;
  Course course = Course::timed(plan, 0, 3);
  const auto much_later = course.begin() + std::chrono::hours(1);
  course.ended(2, much_later);
  EXPECT_FALSE(course.is_over(2, much_later));
  EXPECT_TRUE(course.counts());
  course.ended(3, much_later);
  EXPECT_EQ(course.counted(), 3U);
  EXPECT_EQ(course.late(), 0U);
}

TEST(Course, FewAreInFlightWhereNothingCounts) {
  const Plan plan;
  EXPECT_EQ(Course::timed(plan, 1, 0).in_flight(0, 16), 16U);
  Course warm = Course::warm_up(plan, 3600, 100);
  EXPECT_EQ(warm.in_flight(0, 16), 1U);
  EXPECT_EQ(warm.in_flight(3, 16), 4U);
  EXPECT_EQ(warm.in_flight(50, 16), 16U);
  EXPECT_FALSE(warm.is_over(99, warm.begin()));
  EXPECT_TRUE(warm.is_over(100, warm.begin()));
  warm.ended(100, warm.begin());
  EXPECT_FALSE(warm.counts());
  EXPECT_EQ(warm.counted(), 0U);
}

// What the processors did for those that came too late is not the others'.
TEST(SampleOf, AShareCounts) {
  Sample one, other;
  one.iterations = 3;
  one.late = 1;
  EXPECT_EQ(one.counted_share(), 0.75);
  EXPECT_EQ(other.counted_share(), 1);
  other.late = 4;
  one.merge(other);
  EXPECT_EQ(one.counted_share(), 0.375);
}

class Machine : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "fairlead-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root = name;
  }
  void TearDown() override { std::filesystem::remove_all(root); }
  void file(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root + path).substr(0, (root + path).rfind('/')));
    std::ofstream(root + path) << text;
  }
  std::string root;
};

TEST_F(Machine, TellsHowItsProcessorsSpendTheirTime) {
  file("/proc/stat", "cpu  10 20 30 40 50 60 70 80 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n");
  const auto ticks = cpu_ticks(SystemFiles(root));
  ASSERT_TRUE(ticks);
  EXPECT_EQ(ticks->user, 30U);
  EXPECT_EQ(ticks->system, 30U);
  EXPECT_EQ(ticks->idle, 90U);
  EXPECT_EQ(ticks->irq, 60U);
  EXPECT_EQ(ticks->softirq, 70U);
  EXPECT_EQ(ticks->steal, 80U);
  EXPECT_EQ(ticks->all(), 360U);
  file("/proc/stat", "intr 5\n");
  EXPECT_FALSE(cpu_ticks(SystemFiles(root)));
  EXPECT_FALSE(cpu_ticks(SystemFiles(root + "/nowhere")));
}

TEST_F(Machine, WarnsWhereItIsBusy) {
  const SystemFiles files(root);
  EXPECT_THAT(busy_warnings({.idle = 100}, {.user = 5, .idle = 200}, files), IsEmpty());
  EXPECT_THAT(busy_warnings({.idle = 100}, {.user = 50, .idle = 150}, files),
              ElementsAre(HasSubstr("50 % of this machine")));
  EXPECT_THAT(busy_warnings({.idle = 100}, {.idle = 190, .steal = 10}, files),
              ElementsAre(HasSubstr("10 % of the processors' time goes to other guests")));
  EXPECT_THAT(busy_warnings({}, {}, files), IsEmpty());
  file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
  EXPECT_THAT(busy_warnings({.idle = 100}, {.idle = 200}, files), ElementsAre(HasSubstr("'powersave'")));
}

}  // namespace
}  // namespace fairlead::bench
