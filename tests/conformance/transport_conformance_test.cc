// What a transport moves: bytes, placed where they belong and nowhere else, reported once and in order.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <numeric>

#include "tests/conformance/transport_fixture.h"

namespace fairlead::conformance {
namespace {

constexpr std::size_t kGuard = 64;
constexpr std::size_t kSizes[] = {0, 1, 8, 4095, 4096, 4097, std::size_t{1} << 20, std::size_t{8} << 20};

// ASSERT_EQ of megabytes would print them.
void expect_pattern(std::span<const std::byte> bytes, std::uint64_t seed, std::size_t first = 0) {
  const std::vector<std::byte> expected = pattern(bytes.size(), seed, first);
  ASSERT_TRUE(are_same(bytes, expected)) << "at " << std::ranges::mismatch(bytes, expected).in1 - bytes.begin()
                                         << " of " << bytes.size();
}

void expect_all(std::span<const std::byte> bytes, std::byte value) { EXPECT_TRUE(are_all(bytes, value)); }

TEST_P(TransportTest, TellsWhatItIs) {
  const auto& capabilities = a.device->capabilities();
  EXPECT_TRUE(capabilities.one_sided);
  EXPECT_TRUE(capabilities.write_then_message_ordered);
  EXPECT_GE(capabilities.max_message, 256u);
  EXPECT_GE(capabilities.max_segments, 1u);
  EXPECT_GE(capabilities.max_outstanding, 1u);
  EXPECT_FALSE(a.device->name().empty());
  EXPECT_FALSE(a.device->describe().empty());
  EXPECT_LE(a.path->local_description().size(), 4096u);
  connect();
  EXPECT_FALSE(a.path->describe().empty());
  EXPECT_FALSE(b.path->describe().empty());
}

TEST_P(TransportTest, TakesNothingBeforeItIsReady) {
  const WorkRequest message{.id = 1, .kind = OpKind::kMessage, .local = {}};
  EXPECT_EQ(a.path->post({&message, 1}), 0u);
  EXPECT_EQ(b.path->post({&message, 1}), 0u);
}

TEST_P(TransportTest, WritesEverySizeAndNothingBeside) {
  connect();
  for (std::size_t size : kSizes) {
    SCOPED_TRACE(size);
    Buffer from(a, size + 1), to(b, size + 2 * kGuard);
    from.fill(3);
    const std::size_t before = a.completed();
    a.write(size, from.segment(0, size), to, kGuard);
    ASSERT_TRUE(pump([&] { return a.completed() == before + 1; }));
    EXPECT_EQ(a.code_of(size), Code::kOk);
    expect_pattern(to.bytes().subspan(kGuard, size), 3);
    expect_all(to.bytes().first(kGuard), std::byte{0});
    expect_all(to.bytes().last(kGuard), std::byte{0});
  }
}

TEST_P(TransportTest, ReadsEverySizeAndNothingBeside) {
  connect();
  for (std::size_t size : kSizes) {
    SCOPED_TRACE(size);
    Buffer into(a, size + 2 * kGuard), from(b, size + 1);
    from.fill(5);
    const std::size_t before = a.completed();
    a.read(size, into.segment(kGuard, size), from, 0);
    ASSERT_TRUE(pump([&] { return a.completed() == before + 1; }));
    EXPECT_EQ(a.code_of(size), Code::kOk);
    expect_pattern(into.bytes().subspan(kGuard, size), 5);
    expect_all(into.bytes().first(kGuard), std::byte{0});
    expect_all(into.bytes().last(kGuard), std::byte{0});
  }
}

TEST_P(TransportTest, DeliversMessagesOfEverySizeInOrder) {
  connect();
  const std::size_t largest = a.device->capabilities().max_message;
  const std::array<std::size_t, 7> sizes = {0, 1, 8, 255, 256, largest - 1, largest};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::vector<std::byte> bytes = pattern(sizes[i], i);
    a.send(i, bytes);
    std::fill(bytes.begin(), bytes.end(), std::byte{0xee});  // they were copied by post()
  }
  ASSERT_TRUE(pump([&] { return a.completed() == sizes.size(); }));
  ASSERT_EQ(b.messages.size(), sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(a.completions[i], std::pair(std::uint64_t{i}, Code::kOk));
    ASSERT_EQ(b.messages[i].size(), sizes[i]);
    expect_pattern(b.messages[i], i);
  }
}

TEST_P(TransportTest, GathersAndScatters) {
  connect();
  const std::size_t count = std::min<std::size_t>(a.device->capabilities().max_segments, 5);
  constexpr std::size_t kPiece = 3000;  // never a multiple of a packet
  Buffer local(a, count * 2 * kPiece), remote(b, count * kPiece);
  local.fill(7);
  std::vector<LocalSegment> segments;
  for (std::size_t i = 0; i < count; ++i) segments.push_back(local.segment(2 * i * kPiece, i == 1 ? 0 : kPiece));
  const std::size_t total = std::accumulate(segments.begin(), segments.end(), std::size_t{0},
                                            [](std::size_t sum, const auto& each) { return sum + each.length; });
  WorkRequest work{.id = 1,
                   .kind = OpKind::kWrite,
                   .local = segments,
                   .remote_address = remote.grant().address,
                   .remote_key = remote.grant().key};
  a.post(work);
  ASSERT_TRUE(pump([&] { return a.completed() == 1; }));
  ASSERT_EQ(a.code_of(1), Code::kOk);
  std::size_t at = 0;
  for (const LocalSegment& each : segments) {
    expect_pattern(remote.bytes().subspan(at, each.length), 7,
                   static_cast<std::size_t>(each.data - local.bytes().data()));
    at += each.length;
  }

  remote.fill(9);
  std::fill(local.bytes().begin(), local.bytes().end(), std::byte{0});
  work.id = 2;
  work.kind = OpKind::kRead;
  a.post(work);
  ASSERT_TRUE(pump([&] { return a.completed() == 2; }));
  ASSERT_EQ(a.code_of(2), Code::kOk);
  at = 0;
  for (const LocalSegment& each : segments) {
    expect_pattern({each.data, each.length}, 9, at);
    at += each.length;
  }
  EXPECT_EQ(at, total);
}

TEST_P(TransportTest, GathersMessages) {
  connect();
  std::vector<std::byte> first(10, std::byte{1}), second(20, std::byte{2});
  std::vector<LocalSegment> segments = {{first.data(), first.size(), 0}, {second.data(), second.size(), 0}};
  segments.resize(std::min<std::size_t>(segments.size(), a.device->capabilities().max_segments));
  a.post({.id = 1, .kind = OpKind::kMessage, .local = segments});
  ASSERT_TRUE(pump([&] { return a.completed() == 1 && !b.messages.empty(); }));
  ASSERT_EQ(b.messages.size(), 1u);
  EXPECT_EQ(b.messages[0].size(), segments.size() == 2 ? 30u : 10u);
  EXPECT_EQ(b.messages[0].front(), std::byte{1});
}

TEST_P(TransportTest, BothDirectionsAtOnce) {
  connect();
  constexpr std::size_t kSize = std::size_t{1} << 20;
  constexpr std::uint64_t kRounds = 8;
  Buffer at_a(a, 3 * kSize), at_b(b, 3 * kSize);
  for (Buffer* each : {&at_a, &at_b}) each->fill(1);
  for (std::uint64_t i = 0; i < kRounds; ++i) {
    a.write(3 * i, at_a.segment(0, kSize), at_b, kSize);
    b.write(3 * i, at_b.segment(0, kSize), at_a, kSize);
    a.read(3 * i + 1, at_a.segment(2 * kSize, kSize), at_b, 0);
    b.read(3 * i + 1, at_b.segment(2 * kSize, kSize), at_a, 0);
    a.send(3 * i + 2, at_a.bytes().first(16));
    b.send(3 * i + 2, at_b.bytes().first(16));
  }
  // A message is acknowledged by the device: the last ones may lie there when the requests complete.
  ASSERT_TRUE(pump([&] {
    return a.completed() == 3 * kRounds && b.completed() == 3 * kRounds && a.messages.size() >= kRounds &&
           b.messages.size() >= kRounds;
  }));
  for (const End* end : {&a, &b}) {
    for (const auto& [id, code] : end->completions) EXPECT_EQ(code, Code::kOk) << id;
    EXPECT_EQ(end->messages.size(), kRounds);
  }
  for (Buffer* each : {&at_a, &at_b}) {
    expect_pattern(each->bytes().subspan(kSize, kSize), 1);
    expect_pattern(each->bytes().subspan(2 * kSize, kSize), 1);
  }
}

TEST_P(TransportTest, CompletesInOrderWithinAKind) {
  connect();
  Buffer from(a, 70'000), into(a, 70'000), to(b, 70'000);
  const int rounds = scaled(300);
  std::map<OpKind, std::uint64_t> next;
  std::uint64_t posted = 0;
  bool ordered = true;
  a.completion_hook = [&](std::uint64_t id, Code code) {
    const auto kind = static_cast<OpKind>(id >> 32);
    ordered &= code == Code::kOk && (id & 0xffffffff) == next[kind]++;
  };
  b.message_hook = [](std::span<const std::byte>) {};
  for (int round = 0; round < rounds; ++round) {
    const std::size_t size = static_cast<std::size_t>(round) * 7919 % 65'536;
    for (OpKind kind : {OpKind::kWrite, OpKind::kRead, OpKind::kMessage}) {
      const std::size_t length = kind == OpKind::kMessage ? size % 200 : size;
      const LocalSegment segment = (kind == OpKind::kRead ? into : from).segment(0, length);
      const WorkRequest work{.id = static_cast<std::uint64_t>(kind) << 32 | static_cast<std::uint64_t>(round),
                             .kind = kind,
                             .local = {&segment, 1},
                             .remote_address = to.grant().address,
                             .remote_key = to.grant().key};
      ASSERT_TRUE(pump([&] { return a.path->post({&work, 1}) == 1; }));
      ++posted;
    }
  }
  ASSERT_TRUE(pump([&] { return a.completed() == posted; }));
  EXPECT_TRUE(ordered);
}

TEST_P(TransportTest, SaysWhenItIsFull) {
  connect();
  Buffer from(a, 4096), to(b, 4096);
  const std::size_t limit = a.device->capabilities().max_outstanding;
  const LocalSegment segment = from.segment(0, 4096);
  std::vector<WorkRequest> many(limit + 10);
  for (std::size_t i = 0; i < many.size(); ++i) {
    many[i] = {.id = i,
               .kind = OpKind::kWrite,
               .local = {&segment, 1},
               .remote_address = to.grant().address,
               .remote_key = to.grant().key};
  }
  std::size_t taken = a.path->post(many);
  EXPECT_GT(taken, 0u);
  EXPECT_LE(taken, limit);
  EXPECT_EQ(a.completed(), 0u) << "reported from inside post()";
  ASSERT_TRUE(pump([&] {
    taken += a.path->post(std::span(many).subspan(taken));
    return a.completed() == many.size();
  }));
  std::set<std::uint64_t> ids;
  for (const auto& [id, code] : a.completions) {
    EXPECT_EQ(code, Code::kOk);
    ids.insert(id);
  }
  EXPECT_EQ(ids.size(), many.size());
}

TEST_P(TransportTest, MessagesBeyondTheDepthArriveInOrder) {
  connect();
  const auto rounds = static_cast<std::uint32_t>(scaled(3000));
  std::uint32_t expected = 0, sent = 0;
  bool ordered = true;
  b.message_hook = [&](std::span<const std::byte> bytes) {
    std::uint32_t value = 0;
    ordered &= bytes.size() == sizeof value;
    std::copy_n(bytes.begin(), std::min(bytes.size(), sizeof value), reinterpret_cast<std::byte*>(&value));
    ordered &= value == expected++;
  };
  ASSERT_TRUE(pump([&] {
    while (sent < rounds) {
      const LocalSegment segment{reinterpret_cast<std::byte*>(&sent), sizeof sent, 0};
      const WorkRequest work{.id = sent, .kind = OpKind::kMessage, .local = {&segment, 1}};
      if (a.path->post({&work, 1}) == 0) break;
      ++sent;
    }
    return a.completed() == rounds;
  }));
  EXPECT_EQ(expected, rounds);
  EXPECT_TRUE(ordered);
}

TEST_P(TransportTest, AWriteCarriesItsNotification) {
  if (!a.device->capabilities().write_notifies) GTEST_SKIP() << "writes of this transport carry none";
  connect();
  for (const std::size_t size : kSizes) {
    SCOPED_TRACE(size);
    Buffer from(a, size + 1), to(b, size + 1);
    from.fill(11);
    bool placed = false;
    b.notification_hook = [&](std::uint32_t) {
      expect_pattern(to.bytes().first(size), 11);
      placed = true;
    };
    const std::size_t before = a.completed();
    const LocalSegment segment = from.segment(0, size);
    const auto value = static_cast<std::uint32_t>(0xfffffff0 + size);
    a.post({.id = size,
            .kind = OpKind::kWrite,
            .local = {&segment, 1},
            .remote_address = to.grant().address,
            .remote_key = to.grant().key,
            .notify = value});
    ASSERT_TRUE(pump([&] { return a.completed() == before + 1 && placed; }));
    EXPECT_EQ(a.code_of(size), Code::kOk);
    EXPECT_EQ(b.notifications.back(), value);
  }
  EXPECT_EQ(b.notifications.size(), std::size(kSizes));
  EXPECT_TRUE(b.messages.empty());
}

// Beyond all credits, so that they must come back.
TEST_P(TransportTest, NotificationsAndMessagesArriveInOrder) {
  if (!a.device->capabilities().write_notifies) GTEST_SKIP() << "writes of this transport carry none";
  connect();
  // Post copies a message; what a write is made of must stay as it is.
  Buffer message_bytes(a, 64), write_bytes(a, 64), to(b, 64);
  const auto count = static_cast<std::uint32_t>(scaled(3000));
  std::uint32_t arrived = 0;
  std::uint64_t completed = 0;
  bool ordered = true;
  b.notification_hook = [&](std::uint32_t value) { ordered &= value == arrived++; };
  b.message_hook = [&](std::span<const std::byte> bytes) {
    std::uint32_t value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    ordered &= value == arrived++;
  };
  a.completion_hook = [&](std::uint64_t id, Code code) { ordered &= id == completed++ && code == Code::kOk; };
  for (std::uint32_t i = 0; i < count; ++i) {
    const bool message = i % 3 == 1;
    std::memcpy(message_bytes.bytes().data(), &i, sizeof i);
    const LocalSegment segment = (message ? message_bytes : write_bytes).segment(0, sizeof i);
    WorkRequest work{.id = i, .kind = message ? OpKind::kMessage : OpKind::kWrite, .local = {&segment, 1}};
    if (!message) {
      work.remote_address = to.grant().address;
      work.remote_key = to.grant().key;
      work.notify = i;
    }
    ASSERT_TRUE(pump([&] { return a.path->post({&work, 1}) == 1; }));
  }
  ASSERT_TRUE(pump([&] { return a.completed() == count && arrived == count; }));
  EXPECT_TRUE(ordered);
}

// The path goes down, or lives and turns away what knew nothing of the refusal.
TEST_P(TransportTest, NoNotificationIsToldOfBehindARefusedWrite) {
  if (!a.device->capabilities().write_notifies) GTEST_SKIP() << "writes of this transport carry none";
  connect();
  Buffer from(a, 64), to(b, 64);
  from.fill(11);
  const LocalSegment segment = from.segment(0, 64);
  const auto post = [&](std::uint64_t id, std::uint64_t key) {
    a.post({.id = id,
            .kind = OpKind::kWrite,
            .local = {&segment, 1},
            .remote_address = to.grant().address,
            .remote_key = key,
            .notify = static_cast<std::uint32_t>(id)});
  };
  post(1, to.grant().key ^ 0x5a5a);
  post(2, to.grant().key);
  post(3, to.grant().key);
  ASSERT_TRUE(pump([&] { return a.completed() == 3; }));
  EXPECT_EQ(a.code_of(1), Code::kProtectionError);
  EXPECT_EQ(a.code_of(2), Code::kAborted);
  EXPECT_EQ(a.code_of(3), Code::kAborted);
  EXPECT_TRUE(b.notifications.empty());
  if (a.downs != 0) return;
  post(4, to.grant().key);
  ASSERT_TRUE(pump([&] { return a.completed() == 4 && !b.notifications.empty(); }));
  EXPECT_EQ(a.code_of(4), Code::kOk);
  EXPECT_EQ(b.notifications, std::vector<std::uint32_t>{4});
}

TEST_P(TransportTest, UnpostableWorkIsReported) {
  connect();
  std::vector<std::byte> large(std::size_t{a.device->capabilities().max_message} + 1);
  const LocalSegment segment{large.data(), large.size(), 0};
  const WorkRequest work{.id = 7, .kind = OpKind::kMessage, .local = {&segment, 1}};
  if (a.path->post({&work, 1}) == 0) return;  // refused at once is as good
  ASSERT_TRUE(pump([&] { return a.completed() == 1; }));
  EXPECT_NE(a.code_of(7), Code::kOk);
  EXPECT_TRUE(b.messages.empty());
}

INSTANTIATE_TEST_SUITE_P(All, TransportTest, testing::ValuesIn(transport_cases()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace fairlead::conformance
