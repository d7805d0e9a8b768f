#include "bench/link/wire.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "bench/link/tap.h"

namespace fairlead::bench {
namespace {

using namespace std::chrono_literals;
using Time = Wire::Time;

// Frames are their numbers, 100 bytes each.
struct Numbered {
  explicit Numbered(const WireOptions& options) : wire(options) {}

  void offer(Time now, std::uint32_t number) {
    take_until(now);
    std::array<std::byte, 100> frame{};
    std::memcpy(frame.data(), &number, sizeof(number));
    if (wire.offer(now, frame, frame.size())) left.emplace_back(now, number);
  }

  void take_until(Time now) {
    for (auto next = wire.next(); next && *next <= now; next = wire.next()) {
      EXPECT_FALSE(wire.take(*next - 1ns));
      const auto frame = wire.take(*next);
      ASSERT_TRUE(frame && frame->size() == 100);
      std::uint32_t number = 0;
      std::memcpy(&number, frame->data(), sizeof(number));
      left.emplace_back(*next, number);
    }
  }

  std::vector<std::uint32_t> numbers() const {
    std::vector<std::uint32_t> found;
    for (const auto& each : left) found.push_back(each.second);
    return found;
  }

  Wire wire;
  std::vector<std::pair<Time, std::uint32_t>> left;
};

void expect_nothing_vanished(const Wire& wire) {
  const WireCounts& counts = wire.counts();
  EXPECT_EQ(counts.offered, counts.left + counts.lost + counts.queue_full + counts.no_room + wire.on_their_way());
}

TEST(Wire, WithoutSettingsPassesFramesOnAtOnce) {
  Numbered line({});
  for (std::uint32_t i = 0; i < 10; ++i) line.offer(Time(i), i);
  ASSERT_EQ(line.left.size(), 10u);
  EXPECT_EQ(line.left.back(), (std::pair<Time, std::uint32_t>(9, 9)));
  EXPECT_EQ(line.wire.next(), std::nullopt);
  EXPECT_EQ(line.wire.counts().offered_bytes, 1000u);
}

TEST(Wire, DelaysEachFrameBySoMuch) {
  Numbered line({.delay = 1ms});
  line.offer(0us, 0);
  line.offer(300us, 1);
  EXPECT_TRUE(line.left.empty());
  EXPECT_EQ(line.wire.on_their_way(), 2u);
  line.take_until(5ms);
  EXPECT_EQ(line.left, (std::vector<std::pair<Time, std::uint32_t>>{{1ms, 0}, {1300us, 1}}));
  expect_nothing_vanished(line.wire);
}

TEST(Wire, ALineCarriesOneFrameAfterTheOther) {
  Numbered line({.delay = 5us, .rate = 1'000'000'000});  // 100 bytes take 800 ns
  for (std::uint32_t i = 0; i < 3; ++i) line.offer(0ns, i);
  line.offer(10us, 3);  // it has been idle
  line.take_until(1ms);
  EXPECT_EQ(line.left,
            (std::vector<std::pair<Time, std::uint32_t>>{{5800ns, 0}, {6600ns, 1}, {7400ns, 2}, {15800ns, 3}}));
}

TEST(Wire, AFullQueueDropsWhatComesLast) {
  Numbered line({.rate = 1'000'000'000, .queue_bytes = 300});
  for (std::uint32_t i = 0; i < 5; ++i) line.offer(0ns, i);
  EXPECT_EQ(line.wire.counts().queue_full, 2u);
  line.offer(800ns, 5);  // one has crossed
  line.offer(800ns, 6);
  line.take_until(1ms);
  EXPECT_EQ(line.numbers(), (std::vector<std::uint32_t>{0, 1, 2, 5}));
  EXPECT_EQ(line.wire.counts().queue_full, 3u);
  expect_nothing_vanished(line.wire);
}

TEST(Wire, HoldsNoMoreThanItMay) {
  Numbered line({.delay = 1ms, .held_bytes = 250});
  for (std::uint32_t i = 0; i < 4; ++i) line.offer(0ns, i);
  EXPECT_EQ(line.wire.counts().no_room, 2u);
  line.take_until(1ms);
  line.offer(1ms, 4);
  line.take_until(2ms);
  EXPECT_EQ(line.numbers(), (std::vector<std::uint32_t>{0, 1, 4}));
  expect_nothing_vanished(line.wire);
}

TEST(Wire, WhatIsLostFollowsFromTheSeedAndTheNumberAlone) {
  const auto survivors = [](const WireOptions& options) {
    Numbered line(options);
    for (std::uint32_t i = 0; i < 1000; ++i) line.offer(Time(i), i);
    line.take_until(1s);
    EXPECT_EQ(line.left.size() + line.wire.counts().lost, 1000u);
    expect_nothing_vanished(line.wire);
    return line.numbers();
  };
  const auto plain = survivors({.loss = 0.1, .seed = 7});
  EXPECT_EQ(plain.size(), 898u);  // the same with every C++ library
  EXPECT_EQ(survivors({.loss = 0.1, .seed = 7}), plain);
  EXPECT_EQ(survivors({.delay = 1ms, .rate = 1'000'000'000, .loss = 0.1, .seed = 7}), plain);
  EXPECT_NE(survivors({.loss = 0.1, .seed = 8}), plain);
  auto reordered = survivors({.loss = 0.1, .reorder = 0.5, .reorder_by = 100ns, .seed = 7});
  EXPECT_NE(reordered, plain);
  std::sort(reordered.begin(), reordered.end());
  EXPECT_EQ(reordered, plain);
  EXPECT_TRUE(survivors({.loss = 1}).empty());
}

TEST(Wire, ReorderingIsCountedAsItIsSeen) {
  Numbered line({.delay = 1us, .reorder = 0.2, .reorder_by = 5us, .seed = 3});
  for (std::uint32_t i = 0; i < 1000; ++i) line.offer(1us * i, i);
  line.take_until(1s);
  ASSERT_EQ(line.left.size(), 1000u);
  std::uint64_t seen = 0;
  std::uint32_t most = 0;
  for (const std::uint32_t number : line.numbers()) {
    seen += number < most;
    most = std::max(most, number);
  }
  EXPECT_GT(seen, 0u);
  EXPECT_EQ(line.wire.counts().overtaken, seen);
  EXPECT_LE(seen, line.wire.counts().held_back);
}

TEST(Wire, OrderIsKeptWithoutReordering) {
  Numbered line({.delay = 3us, .rate = 2'000'000'000, .loss = 0.3});
  for (std::uint32_t i = 0; i < 1000; ++i) line.offer(Time(i * 100), i);
  line.take_until(1s);
  const auto numbers = line.numbers();
  EXPECT_TRUE(std::is_sorted(numbers.begin(), numbers.end()));
  EXPECT_EQ(line.wire.counts().overtaken, 0u);
}

// A frame as a TAP device gives it: which kind, how many bytes a segment, where TCP or UDP begins, TCP's header in
// words.
std::vector<std::byte> tap_frame(std::uint8_t kind, std::uint16_t segment, std::uint16_t start, std::uint8_t words,
                                 std::size_t size) {
  std::vector<std::byte> frame(kVirtioNetHeader + size);
  frame[1] = std::byte{kind};
  std::memcpy(&frame[4], &segment, sizeof(segment));
  std::memcpy(&frame[6], &start, sizeof(start));
  if (frame.size() > kVirtioNetHeader + start + 12u)
    frame[kVirtioNetHeader + start + 12] = static_cast<std::byte>(words << 4);
  return frame;
}

TEST(BytesOnTheLine, EachSegmentHasHeadersOfItsOwn) {
  const auto of = [](const std::vector<std::byte>& frame) {
    std::uint64_t packets = 0;
    const std::uint64_t bytes = bytes_on_the_line(frame, &packets);
    return std::pair(bytes, packets);
  };
  using Found = std::pair<std::uint64_t, std::uint64_t>;
  EXPECT_EQ(of(tap_frame(0, 0, 0, 0, 1514)), Found(1514, 1));
  EXPECT_EQ(of(tap_frame(1, 1448, 34, 8, 66 + 1448 * 3 + 1)), Found(66 * 4 + 1448 * 3 + 1, 4));  // TCP over IPv4
  EXPECT_EQ(of(tap_frame(0x81, 1448, 34, 8, 66 + 1448 * 2)), Found((66 + 1448) * 2, 2));         // ... with ECN
  EXPECT_EQ(of(tap_frame(4, 1428, 54, 8, 86 + 1428 * 2)), Found((86 + 1428) * 2, 2));            // TCP over IPv6
  EXPECT_EQ(of(tap_frame(5, 1000, 34, 0, 42 + 2500)), Found(42 * 3 + 2500, 3));                  // UDP
}

TEST(BytesOnTheLine, OfWhatMakesNoSenseAreItsOwn) {
  for (const auto& frame :
       {tap_frame(1, 100, 60000, 8, 500), tap_frame(1, 100, 34, 15, 60), tap_frame(5, 100, 500, 0, 500)}) {
    std::uint64_t packets = 0;
    EXPECT_EQ(bytes_on_the_line(frame, &packets), frame.size() - kVirtioNetHeader);
    EXPECT_EQ(packets, 1u);
  }
  EXPECT_EQ(bytes_on_the_line({}, nullptr), 0u);
}

}  // namespace
}  // namespace fairlead::bench
