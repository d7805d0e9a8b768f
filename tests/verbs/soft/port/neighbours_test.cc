// Who is known on a link, and who is asked: bounded, and found by key and by time.
#include "verbs/soft/port/frame/neighbours.h"

#include <gtest/gtest.h>

#include <set>

namespace fairlead::soft {
namespace {

constexpr Nanos kStart = 5 * kSecond;
constexpr Mac kStation{{2, 0, 0, 0, 0, 7}};

Gid address(std::uint32_t number) { return Gid::from_ipv4(0x0a000000 + number); }

TEST(Neighbours, AreBoundedAndWhoIsUsedStays) {
  Neighbours neighbours;
  const int used = neighbours.find_or_add(address(0), kStart);
  ASSERT_TRUE(neighbours.learn(address(0), kStation, kStart));
  const int unused = neighbours.find_or_add(address(1), kStart);
  ASSERT_TRUE(neighbours.learn(address(1), kStation, kStart));
  for (std::uint32_t i = 2; i < 10 * Neighbours::kMost; ++i) {
    static_cast<void>(neighbours.find_or_add(address(i), kStart));
    ASSERT_NE(neighbours.lookup(used, address(0), kStart), nullptr) << i;
  }
  EXPECT_EQ(neighbours.size(), Neighbours::kMost);
  // Another has taken this one's place. It is asked for again, and its frames go to nobody else meanwhile.
  EXPECT_EQ(neighbours.lookup(unused, address(1), kStart), nullptr);
  ASSERT_TRUE(neighbours.learn(address(1), kStation, kStart));
  EXPECT_NE(neighbours.lookup(unused, address(1), kStart), nullptr);
  EXPECT_EQ(neighbours.size(), Neighbours::kMost);
}

TEST(Neighbours, AreAskedForOnceEachInTheOrderOfTime) {
  Neighbours neighbours;
  constexpr std::uint32_t kCount = 3000;
  for (std::uint32_t i = 0; i < kCount; ++i) {
    static_cast<void>(neighbours.find_or_add(address(i), kStart + (i * 7919) % kCount));
  }
  std::set<std::uint32_t> asked;
  for (Nanos now = kStart; now < kStart + kCount; ++now) {
    EXPECT_EQ(neighbours.next_due(), now);
    const auto question = neighbours.due(now);
    ASSERT_TRUE(question);
    EXPECT_EQ(question->known, nullptr);
    EXPECT_TRUE(asked.insert(question->address.ipv4()).second);
    EXPECT_FALSE(neighbours.due(now));
  }
  EXPECT_GT(neighbours.next_due(), kStart + kCount);
}

}  // namespace
}  // namespace fairlead::soft
