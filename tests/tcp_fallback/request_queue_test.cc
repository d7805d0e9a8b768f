#include "tcp_fallback/request_queue.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tcp_fallback/frame.h"

namespace fairlead::tcp_fallback {
namespace {

using datapath::LocalSegment;
using datapath::OpKind;
using datapath::WorkRequest;

bool push_message(RequestQueue& queue, std::size_t size, int value) {
  std::vector<std::byte> bytes(size, static_cast<std::byte>(value));
  const LocalSegment segment{bytes.data(), bytes.size(), 0};
  return queue.push({.id = queue.end(), .kind = OpKind::kMessage, .local = {&segment, 1}});
}

TEST(RequestQueue, IsFullAtItsDepth) {
  RequestQueue queue(3);
  for (std::uint64_t id = 0; id < 3; ++id) EXPECT_TRUE(queue.push({.id = id, .local = {}}));
  EXPECT_FALSE(queue.push({.id = 3, .local = {}}));
  EXPECT_FALSE(queue.find_sent(0).has_value());
  queue.mark_sent();
  EXPECT_EQ(queue.find_sent(0), 0u);
  EXPECT_FALSE(queue.find_sent(1).has_value());
  queue.pop();
  EXPECT_FALSE(queue.find_sent(0).has_value());
  EXPECT_TRUE(queue.push({.id = 3, .local = {}}));
}

TEST(RequestQueue, GrowsAndKeepsWhatItHas) {
  RequestQueue queue(200);
  std::uint64_t pushed = 0, popped = 0;
  for (std::uint64_t under_way : {10u, 60u, 200u, 3u, 200u}) {
    while (pushed - popped > under_way) queue.mark_sent(), queue.pop(), ++popped;
    while (pushed - popped < under_way) ASSERT_TRUE(queue.push({.id = 7 * pushed++, .local = {}}));
    for (std::uint64_t seq = popped; seq < pushed; ++seq) ASSERT_EQ(queue.at(seq).id, 7 * seq);
  }
  EXPECT_FALSE(queue.push({.id = 0, .local = {}}));
}

TEST(RequestQueue, NumbersWrapAround) {
  RequestQueue queue(2);
  for (std::uint64_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(queue.push({.id = i, .local = {}}));
    queue.mark_sent();
    EXPECT_EQ(queue.find_sent(static_cast<std::uint32_t>(i)), i);
    EXPECT_FALSE(queue.find_sent(static_cast<std::uint32_t>(i - 1)).has_value());
    queue.pop();
  }
}

TEST(RequestQueue, KeepsMessagesUntilTheyAreSent) {
  RequestQueue queue(4096);
  int pushed = 0, sent = 0;
  const auto check = [&](int index) {
    const Request& request = queue.at(static_cast<std::uint64_t>(index));
    const auto* bytes = static_cast<const std::byte*>(request.segments[0].iov_base);
    for (std::size_t i = 0; i < request.length; ++i) ASSERT_EQ(bytes[i], static_cast<std::byte>(index));
  };
  for (int round = 0; round < 300; ++round) {
    while (push_message(queue, static_cast<std::size_t>(pushed * 7919) % (kMaxMessage + 1), pushed)) ++pushed;
    ASSERT_GT(pushed, sent) << "an empty store takes any message";
    for (int i = 0; i < 1 + round % 5 && sent < pushed; ++i) {
      check(sent++);
      queue.mark_sent();
      queue.pop();
    }
  }
}

TEST(RequestQueue, WhatCannotBeServedIsKeptWithItsVerdict) {
  RequestQueue queue(8);
  const std::vector<LocalSegment> many(kMaxSegments + 1);
  ASSERT_TRUE(queue.push({.id = 0, .kind = OpKind::kWrite, .local = many}));
  const LocalSegment huge[] = {{nullptr, ~std::uint64_t{0}, 0}, {nullptr, 2, 0}};
  ASSERT_TRUE(queue.push({.id = 1, .kind = OpKind::kRead, .local = huge}));
  ASSERT_TRUE(push_message(queue, kMaxMessage + 1, 0));
  for (std::uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(queue.at(i).code, Code::kInvalidArgument);
    EXPECT_EQ(queue.at(i).kind, OpKind::kWrite);
    EXPECT_EQ(queue.at(i).length, 0u);
  }
}

TEST(Slice, WalksTheSegments) {
  std::byte a[10], b[20];
  Request request;
  request.segment_count = 3;
  request.segments[0] = {a, sizeof a};
  request.segments[1] = {nullptr, 0};
  request.segments[2] = {b, sizeof b};
  iovec pieces[4];
  EXPECT_EQ(slice(request, 0, 30, pieces), 2u);
  EXPECT_EQ(pieces[0].iov_base, a);
  EXPECT_EQ(pieces[1].iov_len, 20u);
  EXPECT_EQ(slice(request, 9, 2, pieces), 2u);
  EXPECT_EQ(pieces[0].iov_base, a + 9);
  EXPECT_EQ(pieces[0].iov_len, 1u);
  EXPECT_EQ(pieces[1].iov_len, 1u);
  EXPECT_EQ(slice(request, 10, 5, pieces), 1u);
  EXPECT_EQ(pieces[0].iov_base, b);
  EXPECT_EQ(slice(request, 30, 5, pieces), 0u);
  EXPECT_EQ(slice(request, 0, 30, std::span(pieces, 1)), 1u);
}

}  // namespace
}  // namespace fairlead::tcp_fallback
