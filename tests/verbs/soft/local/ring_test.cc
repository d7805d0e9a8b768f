// The ring between two processes: laps, a full one, sleep, and what either end can make the other believe.
#include "verbs/soft/port/local/ring.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

namespace fairlead::soft::local::test {
namespace {

struct Ends {
  std::unique_ptr<Ring> ring = std::make_unique<Ring>();
  Producer producer{*ring};
  Consumer consumer{*ring};

  void push(std::uint32_t value, std::uint16_t bytes = 100) {
    std::memcpy(producer.place(), &value, sizeof value);
    producer.push(bytes, Route{.source = {}, .destination = {}, .source_port = 4711}, Slot::kUnchecked);
  }
  std::uint32_t take() {
    RxPacket packet;
    Consumer::Referred referred;
    std::uint32_t value = 0;
    EXPECT_TRUE(consumer.ready());
    EXPECT_TRUE(consumer.take(packet, referred));
    EXPECT_EQ(packet.bytes.size(), 100U);
    EXPECT_EQ(packet.source_port, 4711U);
    EXPECT_TRUE(packet.unchecked);
    std::memcpy(&value, packet.bytes.data(), sizeof value);
    return value;
  }
};

TEST(LocalRing, PacketsComeInOrderForManyLaps) {
  Ends ends;
  std::uint32_t sent = 0, got = 0;
  for (std::uint32_t burst = 1; sent < 20 * kSlots; burst = burst % kSlots + 7) {
    for (std::uint32_t i = 0; i < burst && ends.producer.has_room(); ++i) ends.push(sent++);
    while (ends.consumer.ready()) ASSERT_EQ(ends.take(), got++);
    ends.consumer.release();
  }
  EXPECT_EQ(got, sent);
}

TEST(LocalRing, WhatIsNotReleasedStays) {
  Ends ends;
  for (std::uint32_t i = 0; i < kSlots; ++i) {
    ASSERT_TRUE(ends.producer.has_room());
    ends.push(i);
  }
  EXPECT_FALSE(ends.producer.has_room());
  EXPECT_EQ(ends.take(), 0U);
  EXPECT_FALSE(ends.producer.has_room()) << "its bytes are still looked at";
  ends.consumer.release();
  EXPECT_TRUE(ends.producer.has_room());
  EXPECT_FALSE(ends.producer.lied());
}

TEST(LocalRing, AConsumerThatSaysItTookWhatNeverWasIsFoundOut) {
  Ends ends;
  for (std::uint32_t i = 0; i < kSlots; ++i) {
    ASSERT_TRUE(ends.producer.has_room());
    ends.push(i);
  }
  ends.ring->taken = kSlots + 1;
  EXPECT_FALSE(ends.producer.has_room());
  EXPECT_TRUE(ends.producer.lied());
  ends.ring->taken = kSlots;
  EXPECT_FALSE(ends.producer.has_room()) << "it is not believed again";
}

TEST(LocalRing, ALengthThatNoPacketHasIsPassedOver) {
  Ends ends;
  for (const std::uint16_t bytes : std::initializer_list<std::uint16_t>{0, 15, 4337, 65535}) {
    ASSERT_TRUE(ends.producer.has_room());
    ends.push(1, bytes);
    RxPacket packet;
    Consumer::Referred referred;
    ASSERT_TRUE(ends.consumer.ready());
    EXPECT_FALSE(ends.consumer.take(packet, referred)) << bytes;
  }
  ends.push(7);
  EXPECT_EQ(ends.take(), 7U);
}

TEST(LocalRing, WhoSleepsIsWokenOnce) {
  Ends ends;
  ends.push(1);
  EXPECT_FALSE(ends.producer.must_wake());
  ends.consumer.sleep();
  EXPECT_TRUE(ends.consumer.ready()) << "it was there before";
  EXPECT_TRUE(ends.producer.must_wake());
  EXPECT_FALSE(ends.producer.must_wake());
  ends.consumer.sleep();
  EXPECT_TRUE(ends.producer.must_wake());
}

struct ReferringEnds : Ends {
  const Route one{}, other{};

  void refer(const Route& owner, std::uint64_t address, std::uint32_t bytes = 4096) {
    const Reference reference{address, bytes, 0};
    std::memcpy(producer.place(), &reference, sizeof reference);
    producer.push(sizeof reference + 100, Route{}, Slot::kUnchecked | Slot::kRefers, {&owner, reference});
  }
  Consumer::Referred take_referred() {
    RxPacket packet;
    Consumer::Referred referred;
    EXPECT_TRUE(consumer.ready());
    EXPECT_TRUE(consumer.take(packet, referred));
    EXPECT_EQ(packet.bytes.size(), 100U);
    return referred;
  }
  std::size_t withdraw_of(const Route& owner) {
    return producer.withdraw([&owner](const Standing& each) { return each.owner == &owner; });
  }
};

TEST(LocalRingReferences, StandUntilOneOfTheTwoTakesThem) {
  ReferringEnds ends;
  for (std::uint64_t lap = 0; lap < 3 * kSlots; lap += 2) {
    ASSERT_TRUE(ends.producer.has_room());
    ends.refer(ends.one, lap);
    ASSERT_TRUE(ends.producer.has_room());
    ends.refer(ends.other, lap + 1);
    EXPECT_EQ(ends.withdraw_of(ends.other), 1U);
    EXPECT_EQ(ends.withdraw_of(ends.other), 0U) << "once";
    const auto first = ends.take_referred(), second = ends.take_referred();
    EXPECT_EQ(first.reference.address, lap);
    EXPECT_EQ(second.reference.address, lap + 1);
    EXPECT_TRUE(first.slot->take_reference());
    EXPECT_FALSE(second.slot->take_reference()) << "it was taken back";
    EXPECT_EQ(ends.withdraw_of(ends.one), 0U) << "the consumer has it";
    ends.consumer.release();
  }
}

// By what it said to have taken the producer looked at 2^31 slots, each time that it took something back.
TEST(LocalRingReferences, AConsumerThatLiesDoesNotMakeTakingBackLong) {
  ReferringEnds ends;
  for (std::uint32_t i = 0; i < kSlots; ++i) {
    ASSERT_TRUE(ends.producer.has_room());
    ends.refer(ends.one, i);
  }
  ends.ring->taken = kSlots + (1U << 31) + 1;
  EXPECT_FALSE(ends.producer.has_room());
  ASSERT_TRUE(ends.producer.lied());
  EXPECT_EQ(ends.withdraw_of(ends.one), kSlots) << "all that it had truly not taken";
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(ends.withdraw_of(ends.one), 0U);
}

TEST(LocalRingReferences, PacketsInTheSameSlotsAreNone) {
  ReferringEnds ends;
  ends.refer(ends.one, 7);
  EXPECT_TRUE(ends.take_referred().slot->take_reference());
  ends.consumer.release();
  for (std::uint32_t i = 0; i < kSlots; ++i) {
    ASSERT_TRUE(ends.producer.has_room());
    ends.push(i);
  }
  EXPECT_EQ(ends.producer.withdraw([](const Standing&) { return true; }), 0U);
  for (std::uint32_t i = 0; i < kSlots; ++i) ASSERT_EQ(ends.take(), i);
}

TEST(LocalRingReferences, ALengthThatNoneHasIsPassedOver) {
  ReferringEnds ends;
  for (const std::uint32_t bytes : {0U, Reference::kMostBytes + 1, ~0U}) {
    ends.refer(ends.one, 7, bytes);
    RxPacket packet;
    Consumer::Referred referred;
    ASSERT_TRUE(ends.consumer.ready());
    EXPECT_FALSE(ends.consumer.take(packet, referred)) << bytes;
  }
}

}  // namespace
}  // namespace fairlead::soft::local::test
