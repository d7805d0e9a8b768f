#include "datapath/flow/in_flight.h"

#include <gtest/gtest.h>

namespace fairlead::datapath {
namespace {

using Use = PostedRequest::Use;

PostedRequest of(Use use, std::uint64_t bytes = 0) {
  PostedRequest made;
  made.use = use;
  made.bytes = bytes;
  return made;
}

TEST(InFlight, EndsByIdentityInAnyOrder) {
  InFlight path;
  const std::uint64_t first = path.next_id();
  EXPECT_NE(first, 0u);
  for (std::uint64_t i = 0; i < 5; ++i) path.push(of(Use::kWrite, i));
  EXPECT_EQ(path.next_id(), first + 5);
  for (std::uint64_t i : {3u, 0u, 4u, 1u, 2u}) {
    const auto ended = path.end(first + i);
    ASSERT_TRUE(ended);
    EXPECT_EQ(ended->bytes, i);
  }
  EXPECT_TRUE(path.empty());
  EXPECT_EQ(path.next_id(), first + 5) << "a number is given once";
}

TEST(InFlight, WhatIsNotOnThePathCannotEnd) {
  InFlight path;
  path.push({});
  path.push({});
  const std::uint64_t first = path.next_id() - 2;
  EXPECT_FALSE(path.end(first - 1));
  EXPECT_FALSE(path.end(first + 2));
  EXPECT_TRUE(path.end(first + 1));
  EXPECT_FALSE(path.end(first + 1)) << "behind one that stays";
  EXPECT_TRUE(path.end(first));
  EXPECT_FALSE(path.end(first)) << "gone";
  EXPECT_EQ(path.size(), 0u);
}

TEST(InFlight, TheOldestEndsFirst) {
  InFlight path;
  for (std::uint64_t i = 1; i <= 3; ++i) path.push(of(Use::kSequenced, i));
  ASSERT_TRUE(path.end(path.next_id() - 2));
  EXPECT_EQ(path.end_oldest().bytes, 1u);
  EXPECT_EQ(path.end_oldest().bytes, 3u);
  EXPECT_TRUE(path.empty());
}

TEST(InFlight, OldestBytesAreThoseOfTheOldestWriteOrRead) {
  InFlight path;
  EXPECT_EQ(path.oldest_bytes(), 0u);
  const std::uint64_t first = path.next_id();
  path.push(of(Use::kSequenced, 9999));
  path.push(of(Use::kWrite, 10));
  path.push(of(Use::kRead, 70));
  path.push(of(Use::kNotifyingWrite, 500));
  path.push(of(Use::kRead, 5));
  EXPECT_EQ(path.oldest_bytes(), 70u);
  ASSERT_TRUE(path.end(first + 2));
  EXPECT_EQ(path.oldest_bytes(), 10u);
  ASSERT_TRUE(path.end(first + 1));
  EXPECT_EQ(path.oldest_bytes(), 500u);
  ASSERT_TRUE(path.end(first + 3));
  ASSERT_TRUE(path.end(first + 4));
  EXPECT_EQ(path.oldest_bytes(), 0u) << "a message is no data";
}

TEST(InFlight, OneThatStaysDoesNotMakeTheOthersPileUp) {
  constexpr std::size_t kDepth = 8;
  InFlight path;
  path.push(of(Use::kRead));
  std::size_t posted = 1;
  while (path.room(kDepth) != 0) {
    path.push(of(Use::kWrite));
    ASSERT_TRUE(path.end(path.next_id() - 1));
    ++posted;
  }
  EXPECT_EQ(posted, 4 * kDepth);
  ASSERT_TRUE(path.end(path.next_id() - posted));
  EXPECT_EQ(path.room(kDepth), kDepth);
}

}  // namespace
}  // namespace fairlead::datapath
