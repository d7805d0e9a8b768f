#include "shm/ring/channel.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace fairlead::shm {
namespace {

using Small = ChannelMemory<4, 64 * 1024>;

struct Channel {
  std::unique_ptr<Small> memory = std::make_unique<Small>();
  Consumed consumed;
  Producer<Small> in{memory.get(), &consumed};
  Consumer<Small> out{memory.get(), &consumed};

  void push(std::uint32_t word) { in.push({.kind = SlotKind::kPulled, .word = word}); }
  std::uint32_t pop() {
    const Slot slot = out.next();
    out.pop(slot);
    return slot.word;
  }
};

TEST(ShmChannel, HoldsAsManySlotsAsItHas) {
  Channel channel;
  EXPECT_FALSE(channel.out.ready());
  for (std::uint32_t lap = 0; lap < 5; ++lap) {
    for (std::uint32_t i = 0; i < Small::kSlots; ++i) {
      ASSERT_TRUE(channel.in.has_room(0));
      channel.push(lap * 10 + i);
    }
    EXPECT_FALSE(channel.in.has_room(0));
    for (std::uint32_t i = 0; i < Small::kSlots; ++i) {
      ASSERT_TRUE(channel.out.ready());
      EXPECT_EQ(channel.pop(), lap * 10 + i);
    }
    EXPECT_FALSE(channel.out.ready());
    EXPECT_FALSE(channel.in.has_room(0)) << "nobody has said that there is";
    EXPECT_TRUE(channel.out.publish());
    EXPECT_FALSE(channel.out.publish());
    EXPECT_TRUE(channel.in.has_room(0));
  }
}

TEST(ShmChannel, PayloadOfEverySizeLiesInOnePieceWithinTheRing) {
  Channel channel;
  std::mt19937 random(3);
  std::uint8_t value = 0;
  for (int round = 0; round < 2000; ++round) {
    const auto bytes = static_cast<std::uint16_t>(random() % (kMaxPiece + 1));
    Slot slot{.kind = SlotKind::kWriteData, .bytes = bytes};
    if (slot.fits_inside()) continue;
    ASSERT_TRUE(channel.in.has_room(bytes));
    std::byte* const to = channel.in.place(bytes);
    ASSERT_GE(to, channel.memory->data.data());
    ASSERT_LE(to + bytes, channel.memory->data.data() + Small::kData);
    std::memset(to, ++value, bytes);
    channel.in.push(slot);
    const Slot got = channel.out.next();
    ASSERT_EQ(channel.out.payload(got), to);
    EXPECT_EQ(channel.out.payload(got)[bytes - 1], std::byte{value});
    channel.out.pop(got);
    channel.out.publish();
  }
}

TEST(ShmChannel, DataThatIsFullLetsSmallSlotsPass) {
  Channel channel;
  while (channel.in.has_room(kMaxPiece)) channel.in.push({.kind = SlotKind::kWriteData, .bytes = kMaxPiece});
  EXPECT_EQ(channel.in.pushed(), 4u) << "the slots end as the data does";
  Channel other;
  for (int i = 0; i < 3; ++i) {
    other.in.push({.kind = SlotKind::kWriteData, .bytes = kMaxPiece});
  }
  EXPECT_TRUE(other.in.has_room(0));
}

TEST(ShmChannel, AConsumerThatLiesIsCaught) {
  for (const std::uint64_t lie : {std::uint64_t{2}, ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
    Channel channel;
    for (std::uint32_t i = 0; i < Small::kSlots; ++i) channel.push(i);
    (void)channel.pop();
    channel.out.publish();
    ASSERT_TRUE(channel.in.has_room(0));
    channel.push(9);
    channel.consumed.slots = lie == 2 ? std::uint64_t{Small::kSlots + 2} : lie;
    EXPECT_FALSE(channel.in.has_room(0));
    EXPECT_TRUE(channel.in.lied());
  }
  Channel back;
  for (std::uint32_t i = 0; i < Small::kSlots; ++i) back.push(i);
  back.consumed.slots = 2;
  ASSERT_TRUE(back.in.has_room(0));
  back.push(4);
  back.push(5);
  back.consumed.slots = 1;
  EXPECT_FALSE(back.in.has_room(0));
  EXPECT_TRUE(back.in.lied());
}

TEST(ShmChannel, TwoThreadsSeeEverythingOnceAndInOrder) {
  Channel channel;
  constexpr std::uint32_t kCount = 20'000;
  std::thread producer([&] {
    for (std::uint32_t i = 0; i < kCount; ++i) {
      const std::uint16_t bytes = i % 7 == 0 ? 1000 : 0;
      while (!channel.in.has_room(bytes)) std::this_thread::yield();
      if (bytes != 0) std::memset(channel.in.place(bytes), static_cast<int>(i & 0xff), bytes);
      channel.in.push({.kind = SlotKind::kWriteData, .bytes = bytes, .word = i});
    }
  });
  std::uint32_t wrong = 0;
  for (std::uint32_t i = 0; i < kCount; ++i) {
    while (!channel.out.ready()) std::this_thread::yield();
    const Slot slot = channel.out.next();
    wrong += slot.word != i ? 1 : 0;
    if (slot.bytes != 0) wrong += channel.out.payload(slot)[slot.bytes - 1] != std::byte(i & 0xff) ? 1 : 0;
    channel.out.pop(slot);
    channel.out.publish();
  }
  producer.join();
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace fairlead::shm
