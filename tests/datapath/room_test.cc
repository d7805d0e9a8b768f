#include "datapath/session/room.h"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>
#include <vector>

namespace fairlead::datapath {
namespace {

using Full = Room::Full;

TEST(Room, WhatIsUnderWayIsBounded) {
  constexpr Room::Limits kLimits{.transfers = 3, .bytes = 100};
  Room room;
  EXPECT_EQ(room.take(60, kLimits), Full::kNo);
  EXPECT_EQ(room.take(41, kLimits), Full::kBytes);
  EXPECT_EQ(room.under_way(), 1u) << "what is refused is not";
  EXPECT_EQ(room.take(40, kLimits), Full::kNo);
  EXPECT_EQ(room.take(1, kLimits), Full::kBytes);
  EXPECT_EQ(room.take(0, kLimits), Full::kNo);
  EXPECT_EQ(room.take(0, kLimits), Full::kTransfers);
  EXPECT_EQ(room.under_way(), 3u);
  room.end(60);
  EXPECT_EQ(room.take(60, kLimits), Full::kNo);
  for (const std::uint64_t bytes : {40U, 0U, 60U}) room.end(bytes);
  EXPECT_EQ(room.under_way(), 0u);
  EXPECT_EQ(room.take(101, kLimits), Full::kNo) << "alone it passes, however large";
  EXPECT_EQ(room.take(1, kLimits), Full::kBytes);
}

class RoomOfMany : public testing::Test {
 protected:
  static constexpr int kThreads = 4, kEach = 200'000;

  void end(std::uint64_t bytes) {
    const std::lock_guard driving(driver);
    room.end(bytes);
  }
  /// Each thread has one under way at a time. How many were refused.
  int post_from_all(const Room::Limits& limits) {
    std::atomic<int> refused{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        for (int n = 0; n < kEach; ++n) {
          if (room.take(1, limits) == Full::kNo) {
            end(1);
          } else {
            ++refused;
          }
        }
      });
    }
    for (std::thread& each : threads) each.join();
    return refused;
  }

  Room room;
  std::mutex driver;
};

TEST_F(RoomOfMany, WhoeverFitsIsNotRefused) {
  EXPECT_EQ(post_from_all({.transfers = kThreads + 1, .bytes = kThreads + 1}), 0);
  EXPECT_EQ(room.under_way(), 0u);
}

// One that asks for too much again and again takes nothing from those that ask for little.
TEST_F(RoomOfMany, WhatIsRefusedIsNotInTheWay) {
  constexpr Room::Limits kLimits{.transfers = kThreads + 1, .bytes = 1000};
  ASSERT_EQ(room.take(500, kLimits), Full::kNo);
  std::atomic<bool> over{false};
  std::thread greedy([&] {
    while (!over) EXPECT_EQ(room.take(900, kLimits), Full::kBytes);
  });
  EXPECT_EQ(post_from_all(kLimits), 0);
  over = true;
  greedy.join();
  EXPECT_EQ(room.under_way(), 1u);
}

TEST_F(RoomOfMany, NoMoreThanTheLimitPass) {
  constexpr Room::Limits kLimits{.transfers = 1000, .bytes = 1'000'000};
  std::atomic<int> passed{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 1000; ++n) passed += room.take(1, kLimits) == Full::kNo ? 1 : 0;
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(passed, 1000);
  EXPECT_EQ(room.under_way(), 1000u);
}

}  // namespace
}  // namespace fairlead::datapath
