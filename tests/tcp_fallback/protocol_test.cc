// Sender and receiver against each other, over a stream that chops calls anywhere.
#include <gtest/gtest.h>

#include "tests/tcp_fallback/protocol_end.h"

namespace fairlead::tcp_fallback {
namespace {

using datapath::OpKind;

struct Two {
  Pipe pipe;
  ProtocolEnd a{pipe, 0};
  ProtocolEnd b{pipe, 1};

  // Steps both until `a` and `b` have that many completions, or nothing more can happen.
  void run(std::size_t at_a, std::size_t at_b = 0) {
    for (int i = 0; i < 10'000'000 && (a.completions.size() < at_a || b.completions.size() < at_b); ++i) {
      ASSERT_EQ(a.step().end, Receiver::End::kNone) << "step " << i;
      ASSERT_EQ(b.step().end, Receiver::End::kNone) << "step " << i;
    }
    ASSERT_EQ(a.completions.size(), at_a);
    ASSERT_EQ(b.completions.size(), at_b);
  }
};

std::vector<std::byte> numbered(std::size_t size, std::size_t seed) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 31 + (i >> 8) + seed);
  return bytes;
}

class ProtocolChopTest : public testing::TestWithParam<std::size_t> {};

// Everything at once, in both directions, with fragments (a request of more than 256 KiB is cut).
TEST_P(ProtocolChopTest, EveryCallMayMoveFewBytes) {
  Two two;
  two.pipe.chunk = GetParam();
  std::vector<std::byte> source = numbered(600'000, 1), target(600'000), read_target(600'000);
  std::vector<std::byte> back_source = numbered(70'000, 2), back_target(70'000);
  const auto at_b = two.b.grants.grant(target, Access::kRemoteWrite).key;
  const auto b_source = two.b.grants.grant(source, Access::kRemoteRead).key;
  const auto at_a = two.a.grants.grant(back_target, Access::kRemoteWrite).key;
  auto message = numbered(kMaxMessage, 3);
  ASSERT_TRUE(two.a.post(OpKind::kWrite, source, at_b));
  ASSERT_TRUE(two.a.post(OpKind::kMessage, std::span(message).first(10)));
  ASSERT_TRUE(two.a.post(OpKind::kRead, read_target, b_source));
  ASSERT_TRUE(two.a.post(OpKind::kMessage, message));
  ASSERT_TRUE(two.a.post(OpKind::kWrite, {}, 12345));  // nothing to place: no key is asked for
  ASSERT_TRUE(two.b.post(OpKind::kWrite, back_source, at_a));
  ASSERT_TRUE(two.b.post(OpKind::kMessage, {}));
  two.run(5, 2);
  for (const auto& [id, code] : two.a.completions) EXPECT_EQ(code, Code::kOk) << id;
  for (const auto& [id, code] : two.b.completions) EXPECT_EQ(code, Code::kOk) << id;
  EXPECT_TRUE(target == source);
  EXPECT_TRUE(read_target == source);
  EXPECT_TRUE(back_target == back_source);
  ASSERT_EQ(two.b.messages.size(), 2u);
  EXPECT_TRUE(two.b.messages[1] == message);
  ASSERT_EQ(two.a.messages.size(), 1u);
  EXPECT_TRUE(two.a.messages[0].empty());
}
INSTANTIATE_TEST_SUITE_P(Chunks, ProtocolChopTest, testing::Values(33, 500, 10'000, 1'000'000));

// Others wait for no more than that.
TEST(Protocol, ATurnTakesWhatItIsGiven) {
  constexpr std::size_t kTurn = 128 << 10, kBytes = 1 << 20, kReadAhead = 96 << 10;
  Pipe pipe;
  pipe.capacity = pipe.chunk = 8 << 20;
  ProtocolEnd from(pipe, 0), to(pipe, 1);
  std::vector<std::byte> source(kBytes), target(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) source[i] = static_cast<std::byte>(i * 7 + i / 251);
  const auto key = to.grants.grant(target, Access::kRemoteWrite).key;
  ASSERT_TRUE(from.post(datapath::OpKind::kWrite, source, key));
  std::size_t turns = 0;
  while (from.completions.empty() && turns < 1000) {
    ++turns;
    EXPECT_LE(from.sender.flush(from.stream, kTurn).bytes, kTurn);
    for (int i = 0; i < 2; ++i) EXPECT_LE(to.receiver.advance(to.stream, to, kTurn).bytes, kTurn + kReadAhead);
    to.sender.flush(to.stream);
    from.receiver.advance(from.stream, from);
  }
  EXPECT_GE(turns, kBytes / kTurn);
  ASSERT_EQ(from.completions.size(), 1u);
  EXPECT_EQ(from.completions[0].second, Code::kOk);
  EXPECT_EQ(source, target);
}

TEST(Protocol, ByteByByte) {
  Two two;
  two.pipe.chunk = 1;
  auto source = numbered(300, 1);
  std::vector<std::byte> target(300), back(300);
  const auto key = two.b.grants.grant(target, Access::kRemoteReadWrite).key;
  two.a.post(OpKind::kWrite, source, key);
  two.a.post(OpKind::kMessage, source);
  two.a.post(OpKind::kRead, back, key);
  two.run(3);
  EXPECT_TRUE(target == source && back == source);
  ASSERT_EQ(two.b.messages.size(), 1u);
  EXPECT_TRUE(two.b.messages[0] == source);
}

TEST(Protocol, RefusedRequestsFailAlone) {
  Two two;
  two.pipe.chunk = 5000;
  auto source = numbered(20'000, 1);
  std::vector<std::byte> target(10'000);
  const auto key = two.b.grants.grant(target, Access::kRemoteReadWrite).key;
  two.a.post(OpKind::kWrite, std::span(source).first(100), key);
  two.a.post(OpKind::kWrite, source, key);  // too long
  two.a.post(OpKind::kMessage, std::span(source).first(5));
  two.a.post(OpKind::kRead, source, key);  // too long
  two.a.post(OpKind::kWrite, std::span(source).first(1), key, 10'000);
  two.a.post(OpKind::kWrite, std::span(source).first(1), key, 9'999);
  two.run(6);
  const std::vector<Code> codes = {
      Code::kOk, Code::kProtectionError, Code::kAborted, Code::kProtectionError, Code::kProtectionError, Code::kOk};
  for (std::size_t i = 0; i < codes.size(); ++i) EXPECT_EQ(two.a.completions[i], std::pair(std::uint64_t{i}, codes[i]));
  EXPECT_EQ(two.b.messages.size(), 0u) << "it was posted behind a write that was refused";
  two.a.post(OpKind::kMessage, std::span(source).first(5));
  two.run(7);
  EXPECT_EQ(two.a.completions[6].second, Code::kOk);
  EXPECT_EQ(two.b.messages.size(), 1u) << "it was posted by someone who knew";
  EXPECT_TRUE(std::all_of(target.begin() + 100, target.end() - 1, [](std::byte b) { return b == std::byte{0}; }));
}

TEST(Protocol, WhatEndsWellInARowIsToldTogether) {
  Two two;
  two.pipe.chunk = 100'000;
  auto source = numbered(100, 1);
  std::vector<std::byte> target(1000);
  const auto key = two.b.grants.grant(target, Access::kRemoteReadWrite).key;
  for (int i = 0; i < 3; ++i) two.a.post(OpKind::kWrite, source, key);
  two.a.post(OpKind::kWrite, source, key, 950);  // too long
  for (int i = 0; i < 2; ++i) two.a.post(OpKind::kWrite, source, key);
  two.run(6);
  EXPECT_EQ(two.a.rows, (std::vector<std::uint64_t>{3, 2}));
  ASSERT_EQ(two.a.completions.size(), 6u);
  EXPECT_EQ(two.a.completions[3].second, Code::kProtectionError);
}

TEST(Protocol, DeregisteredInTheMiddleOfAWrite) {
  Two two;
  two.pipe.chunk = 1000;
  auto source = numbered(200'000, 1);
  std::vector<std::byte> target(200'000);
  const auto region = two.b.grants.grant(target, Access::kRemoteWrite);
  two.a.post(OpKind::kWrite, source, region.key);
  while (target[50'000] == std::byte{0}) {
    two.a.step();
    two.b.step();
  }
  two.b.grants.revoke(region);
  const auto before = target;
  two.a.post(OpKind::kMessage, std::span(source).first(5));
  two.run(2);
  EXPECT_EQ(two.a.completions[0].second, Code::kProtectionError);
  EXPECT_EQ(two.a.completions[1].second, Code::kAborted);
  EXPECT_TRUE(target == before);
  EXPECT_EQ(target.back(), std::byte{0});
}

TEST(Protocol, DeregisteredInTheMiddleOfARead) {
  Two two;
  two.pipe.chunk = 1000;
  two.pipe.capacity = 10'000;
  auto source = numbered(700'000, 1);
  std::vector<std::byte> into(700'000);
  const auto region = two.b.grants.grant(source, Access::kRemoteRead);
  two.a.post(OpKind::kRead, into, region.key);
  while (into[50'000] == std::byte{0}) {
    two.a.step();
    two.b.step();
  }
  two.b.grants.revoke(region);
  two.a.post(OpKind::kMessage, std::span(source).first(5));
  two.run(2);
  EXPECT_EQ(two.a.completions[0].second, Code::kProtectionError);
  EXPECT_EQ(two.a.completions[1].second, Code::kOk);
  EXPECT_NE(into.back(), source.back());
}

// EFAULT: what a file that was truncated under its mapping gives.
TEST(Protocol, PagesThatAreGoneFailOneRequest) {
  for (std::size_t chunk : {100u, 100'000u}) {
    Two two;
    two.pipe.chunk = chunk;
    auto good = numbered(5'000, 1), bad = numbered(300'000, 2);
    std::vector<std::byte> target(300'000), unwritable(300'000);
    const auto in = [](const std::vector<std::byte>& bytes) {
      return [begin = bytes.data() + 4096, end = bytes.data() + bytes.size()](const iovec& piece) {
        auto* at = static_cast<std::byte*>(piece.iov_base);
        return at + piece.iov_len > begin && at < end;
      };
    };
    two.a.stream.faulty = in(bad);
    two.b.stream.faulty = in(unwritable);
    const auto key = two.b.grants.grant(target, Access::kRemoteReadWrite).key;
    const auto unwritable_key = two.b.grants.grant(unwritable, Access::kRemoteReadWrite).key;
    auto into = numbered(300'000, 3);
    two.a.post(OpKind::kWrite, good, key);
    two.a.post(OpKind::kWrite, bad, key);              // its source is gone
    two.a.post(OpKind::kWrite, into, unwritable_key);  // its target is gone
    two.a.post(OpKind::kRead, into, unwritable_key);   // its source is gone, at the peer
    two.a.post(OpKind::kRead, bad, key);               // its target is gone, here
    two.a.post(OpKind::kWrite, good, key);
    two.run(6);
    const std::vector<Code> codes = {
        // Memory lost here is data loss; memory lost at the peer is the peer's refusal.
        Code::kOk, Code::kDataLoss, Code::kProtectionError, Code::kProtectionError, Code::kDataLoss, Code::kOk};
    for (std::size_t i = 0; i < codes.size(); ++i)
      EXPECT_EQ(two.a.completions[i].second, codes[i]) << i << " of chunk " << chunk;
    EXPECT_TRUE(std::equal(good.begin(), good.end(), target.begin()));
  }
}

// Zeros were sent in place of a lost source: nobody may be told that the data is there.
TEST(Protocol, NoMessageArrivesBehindALostWrite) {
  for (std::size_t chunk : {100u, 100'000u}) {
    Two two;
    two.pipe.chunk = chunk;
    auto good = numbered(100, 1), bad = numbered(300'000, 2);
    std::vector<std::byte> target(300'000);
    two.a.stream.faulty = [&](const iovec& piece) {
      auto* at = static_cast<std::byte*>(piece.iov_base);
      return at + piece.iov_len > bad.data() + 290'000 && at < bad.data() + bad.size();
    };
    const auto key = two.b.grants.grant(target, Access::kRemoteReadWrite).key;
    two.a.post(OpKind::kMessage, std::span(good).first(1));
    two.a.post(OpKind::kWrite, bad, key);
    two.a.post(OpKind::kWrite, good, key);
    two.a.post(OpKind::kMessage, std::span(good).first(2));
    two.run(4);
    two.a.post(OpKind::kMessage, std::span(good).first(3));
    two.run(5);
    const std::vector<Code> codes = {Code::kOk, Code::kDataLoss, Code::kOk, Code::kAborted, Code::kOk};
    for (std::size_t i = 0; i < codes.size(); ++i) EXPECT_EQ(two.a.completions[i].second, codes[i]) << i;
    ASSERT_EQ(two.b.messages.size(), 2u);
    EXPECT_EQ(two.b.messages[0].size(), 1u);
    EXPECT_EQ(two.b.messages[1].size(), 3u);
  }
}

TEST(Protocol, AcknowledgementsDoNotWaitBehindPayload) {
  Two two;
  two.pipe.chunk = 1'000'000;
  two.pipe.capacity = 10'000;  // b's own writes fill it at once
  auto source = numbered(4'000'000, 1);
  std::vector<std::byte> target(4'000'000);
  const auto at_a = two.a.grants.grant(target, Access::kRemoteWrite).key;
  for (int i = 0; i < 8; ++i) two.b.post(OpKind::kWrite, source, at_a);
  two.b.step();
  two.a.post(OpKind::kMessage, std::span(source).first(10));
  std::size_t steps = 0;
  while (two.a.completions.empty() && steps < 100'000) {
    two.a.step();
    two.b.step();
    ++steps;
  }
  EXPECT_EQ(two.b.completions.size(), 0u) << "the answer came only after " << steps << " steps";
  two.run(1, 8);
}

}  // namespace
}  // namespace fairlead::tcp_fallback
