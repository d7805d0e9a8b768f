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

TEST(InFlight, DataOfOneTransferInARowEndsTogether) {
  InFlight path;
  TransferImpl *const one = reinterpret_cast<TransferImpl*>(64), *const other = reinterpret_cast<TransferImpl*>(128);
  const std::uint64_t first = path.next_id();
  for (const auto& [transfer, use] : {std::pair{one, Use::kWrite},
                                      {one, Use::kWrite},
                                      {other, Use::kRead},
                                      {other, Use::kRead},
                                      {other, Use::kSequenced},
                                      {other, Use::kRead}}) {
    PostedRequest made = of(use, 10);
    made.transfer = transfer;
    path.push(made);
  }
  EndedData sum;
  EXPECT_EQ(path.end_data(first - 1, first + 6, sum), 0u) << "not on the path";
  EXPECT_EQ(path.end_data(first + 4, first + 6, sum), 0u) << "no data";
  EXPECT_EQ(path.end_data(first + 2, first + 3, sum), 1u) << "as far as was asked";
  EXPECT_EQ(path.end_data(first, first + 6, sum), 2u) << "another's is behind";
  EXPECT_EQ(sum.transfer, one);
  EXPECT_EQ(sum.bytes, 20u);
  EXPECT_EQ(path.end_data(first + 2, first + 6, sum), 0u) << "has ended";
  EXPECT_EQ(path.end_data(first + 3, first + 100, sum), 1u);
  EXPECT_EQ(path.size(), 2u);
  EXPECT_EQ(path.end_data(first + 5, first + 100, sum), 1u);
  EXPECT_TRUE(path.end(first + 4));
  EXPECT_TRUE(path.empty());
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
