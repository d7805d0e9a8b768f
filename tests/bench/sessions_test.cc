// Where loads of several threads meet, and what is made of the figures of several.
#include "bench/net/sessions.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "bench/net/measured.h"
#include "bench/net/together.h"
#include "tests/no_threads.h"

namespace fairlead::bench {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::Field;

auto is_share(const std::string& name, std::uint64_t iterations, double seconds) {
  return AllOf(Field(&Share::name, name), Field(&Share::iterations, iterations), Field(&Share::seconds, seconds));
}

TEST(Together, NobodyBeginsBeforeAllHaveComeNorGoesOnBeforeAllHaveEnded) {
  constexpr int kLoads = 8;
  Together together(kLoads);
  std::atomic<int> came = 0, began = 0, ended = 0, too_early = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kLoads; ++i) {
      threads.emplace_back([&] {
        ++came;
        together.warm();
        if (came != kLoads) ++too_early;
        ++began;
        together.begin();
        if (began != kLoads) ++too_early;
        ++ended;
        together.end(std::chrono::steady_clock::now());
        if (ended != kLoads) ++too_early;
      });
    }
  }
  EXPECT_EQ(too_early, 0);
  EXPECT_FALSE(together.failed());
  EXPECT_GT(together.seconds(), 0);
}

TEST(Together, WhoLeavesIsNotWaitedFor) {
  for (const int meetings : {0, 1, 2, 3}) {  // before, between and after
    Together together(3);
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < 2; ++i) {
        threads.emplace_back([&] {
          together.warm();
          together.begin();
          together.end(std::chrono::steady_clock::now());
        });
      }
      if (meetings > 0) together.warm();
      if (meetings > 1) together.begin();
      if (meetings > 2) together.end(std::chrono::steady_clock::now());
      together.leave();
    }
    EXPECT_TRUE(together.failed()) << meetings;
  }
}

TEST(Together, TheClockEndsWithTheLastThatCounts) {
  Together together(1);
  together.warm();
  together.begin();
  together.end(std::chrono::steady_clock::now() + std::chrono::hours(1));
  EXPECT_GE(together.seconds(), 3600);
}

TEST(Together, AllMayLeave) {
  Together together(2);
  together.leave();
  together.leave();
  EXPECT_TRUE(together.failed());
}

TEST(Shares, OfOneNameAreAddedUp) {
  Sample sample;
  sample.add_part({.name = "to a", .iterations = 3, .seconds = 2});
  sample.add_part({.name = "to b", .iterations = 5, .seconds = 2});
  sample.add_part({.name = "to a", .iterations = 4, .seconds = 2});
  EXPECT_THAT(sample.parts, ElementsAre(is_share("to a", 7, 2), is_share("to b", 5, 2)));
  EXPECT_EQ(bytes_per_second(sample.parts[0], 10), 35);
}

TEST(Shares, OfRepeatsAreOfAllTheirTime) {
  Sample first, second;
  first.add_part({.name = "to a", .iterations = 3, .seconds = 2});
  second.add_part({.name = "to a", .iterations = 5, .seconds = 4});
  second.add_part({.name = "to b", .iterations = 1, .seconds = 4});
  first.merge(second);
  EXPECT_THAT(first.parts, ElementsAre(is_share("to a", 8, 6), is_share("to b", 1, 4)));
}

TEST(Sessions, WhoseThreadsCannotBeBegunAreNotWaitedFor) {
  const MeasuredSession sessions[] = {{.link = nullptr, .op = Op::kWrite}, {.link = nullptr, .op = Op::kWrite}};
  const test::NoThreads none;
  const Result<Sample> sample = measure(sessions, {}, 8);
  ASSERT_FALSE(sample);
  EXPECT_EQ(sample.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(sample.error().message(), testing::StartsWith("no thread for session 1 of 2 ("));
}

}  // namespace
}  // namespace fairlead::bench
