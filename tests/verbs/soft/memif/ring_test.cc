// Frames through rings, and rings whose other end writes anything.
#include "verbs/soft/port/memif/ring.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>

#include "tests/verbs/soft/memif/two_ends.h"

namespace fairlead::soft::memif::test {
namespace {

using Frames = std::vector<std::vector<std::byte>>;

std::vector<std::byte> frame_of(std::size_t bytes, unsigned fill) {
  std::vector<std::byte> made(bytes);
  for (std::size_t i = 0; i < bytes; ++i) made[i] = static_cast<std::byte>(fill + i * 7);
  return made;
}

bool send(Sender& sender, const std::vector<std::byte>& frame) {
  const std::size_t slots = sender.copy(0, frame);
  if (slots > 0) static_cast<void>(sender.publish(slots));
  return slots > 0;
}

// Gives the buffers back, unless it is told to hold them.
Frames take(Receiver& receiver, std::size_t most = 64, bool hold = false) {
  std::vector<std::span<const std::byte>> frames(most);
  const std::size_t count = receiver.take(frames);
  Frames made;
  for (const auto& each : std::span(frames).first(count)) made.emplace_back(each.begin(), each.end());
  if (!hold) static_cast<void>(receiver.take({}));
  return made;
}

class MemifRing : public testing::TestWithParam<bool> {
 protected:
  MemifRing() { EXPECT_EQ(ends.talk(), ""); }
  Sender& sender() { return (GetParam() ? ends.slave : ends.master)->wire()->sender; }
  Receiver& receiver() { return (GetParam() ? ends.master : ends.slave)->wire()->receiver; }

  TwoEnds ends{{}, {.log2_slots = 4, .buffer_bytes = 256}};
};

INSTANTIATE_TEST_SUITE_P(Directions, MemifRing, testing::Bool(),
                         [](const auto& info) { return info.param ? "ToMaster" : "ToSlave"; });

TEST_P(MemifRing, FramesArriveInOrderManyTimesRound) {
  unsigned sent = 0;
  unsigned seen = 0;
  for (int round = 0; round < 8'000; ++round) {  // more than 2^16 slots
    const unsigned burst = static_cast<unsigned>(round) % 16 + 1;
    for (unsigned i = 0; i < burst; ++i, ++sent) ASSERT_TRUE(send(sender(), frame_of(1 + sent % 256, sent)));
    for (const auto& frame : take(receiver())) {
      ASSERT_EQ(frame, frame_of(1 + seen % 256, seen));
      ++seen;
    }
    ASSERT_EQ(seen, sent);
  }
  EXPECT_EQ(sender().fault(), nullptr);
  EXPECT_EQ(receiver().fault(), nullptr);
}

TEST_P(MemifRing, AFullRingTakesNothingUntilItIsRead) {
  for (unsigned i = 0; i < 16; ++i) EXPECT_TRUE(send(sender(), frame_of(10, i)));
  EXPECT_EQ(sender().free(1), 0U);
  EXPECT_FALSE(send(sender(), frame_of(10, 16)));
  EXPECT_EQ(take(receiver(), 3, true).size(), 3U);
  EXPECT_EQ(sender().free(16), 0U) << "what was taken is still being read";
  EXPECT_EQ(take(receiver(), 3, true).size(), 3U);
  EXPECT_EQ(sender().free(16), 3U);
}

TEST_P(MemifRing, LongFramesTakeSeveralBuffers) {
  const auto frame = frame_of(1000, 3);
  EXPECT_TRUE(send(sender(), frame_of(20, 1)));
  EXPECT_TRUE(send(sender(), frame));
  EXPECT_TRUE(send(sender(), frame));
  EXPECT_TRUE(send(sender(), frame_of(20, 2)));
  EXPECT_EQ(take(receiver()), (Frames{frame_of(20, 1), frame})) << "one copy at a time";
  EXPECT_EQ(take(receiver()), (Frames{frame, frame_of(20, 2)}));
  EXPECT_FALSE(send(sender(), frame_of(256 * 16 + 1, 4))) << "longer than the ring";
  EXPECT_TRUE(send(sender(), frame_of(256 * 16, 4)));
  EXPECT_EQ(take(receiver()), Frames{frame_of(256 * 16, 4)});
}

TEST_P(MemifRing, WhoSleepsIsWoken) {
  const std::vector<std::byte> frame = frame_of(9, 9);
  receiver().want_to_be_woken(true);
  EXPECT_EQ(sender().copy(0, frame), 1U);
  EXPECT_TRUE(sender().publish(1));
  receiver().want_to_be_woken(false);
  EXPECT_EQ(sender().copy(0, frame), 1U);
  EXPECT_FALSE(sender().publish(1));
  EXPECT_EQ(take(receiver()).size(), 2U);
}

// What the peer could do to the memory that both share.
struct Memory {
  explicit Memory(const TwoEnds& ends) : at(ends.master->wire()->regions.find(0, 0, kRing)) {}
  RingView to_master() const { return RingView(at); }
  RingView to_slave() const { return RingView(at + RingView::bytes(4)); }
  static constexpr std::size_t kRing = 2 * RingView::bytes(4);
  std::byte* at;
};

TEST(MemifLies, IndicesBeyondTheRing) {
  for (const std::uint16_t ahead : std::vector<std::uint16_t>{17, 100, 32768, 65535}) {
    TwoEnds ends({}, {.log2_slots = 4});
    ASSERT_EQ(ends.talk(), "");
    const Memory memory(ends);
    memory.to_master().head().store(ahead);
    EXPECT_TRUE(take(ends.master->wire()->receiver).empty());
    EXPECT_NE(ends.master->wire()->receiver.fault(), nullptr);
    if (ahead == 65535) continue;  // the others only count what is free by it
    memory.to_master().tail().store(ahead);
    EXPECT_EQ(ends.slave->wire()->sender.free(16), 0U);
    EXPECT_NE(ends.slave->wire()->sender.fault(), nullptr);
    memory.to_slave().tail().store(ahead);
    EXPECT_TRUE(take(ends.slave->wire()->receiver).empty());
    EXPECT_NE(ends.slave->wire()->receiver.fault(), nullptr);
    memory.to_slave().head().store(ahead);
    EXPECT_EQ(ends.master->wire()->sender.free(16), 0U);
    EXPECT_NE(ends.master->wire()->sender.fault(), nullptr);
  }
}

TEST(MemifLies, AnIndexThatGoesBack) {
  TwoEnds ends({}, {.log2_slots = 4});
  ASSERT_EQ(ends.talk(), "");
  for (unsigned i = 0; i < 8; ++i) EXPECT_TRUE(send(ends.slave->wire()->sender, frame_of(10, i)));
  Receiver& receiver = ends.master->wire()->receiver;
  EXPECT_EQ(take(receiver).size(), 8U);
  Memory(ends).to_master().head().store(4);
  EXPECT_FALSE(receiver.has_more());
  EXPECT_NE(receiver.fault(), nullptr);
}

TEST(MemifLies, DescriptorsOfMemoryThatIsNoRegions) {
  for (const Descriptor& lie :
       {Descriptor{0, 1, 64, 0, 0}, Descriptor{0, 65535, 64, 0, 0}, Descriptor{0, 0, 64, 0xffffffc0, 0},
        Descriptor{0, 0, 0xffffffff, 0, 0}, Descriptor{0, 0, 0xffffffff, 0xffffffff, 0}}) {
    TwoEnds ends({}, {.log2_slots = 4});
    ASSERT_EQ(ends.talk(), "");
    const Memory memory(ends);
    memory.to_master().write(0, lie);
    memory.to_master().head().store(1);
    EXPECT_TRUE(take(ends.master->wire()->receiver).empty());
    EXPECT_NE(ends.master->wire()->receiver.fault(), nullptr);
    memory.to_slave().write(0, lie);
    EXPECT_EQ(ends.master->wire()->sender.free(1), 1U);
    std::uint32_t bytes = 0;
    EXPECT_EQ(ends.master->wire()->sender.buffer(0, bytes), nullptr);
    EXPECT_NE(ends.master->wire()->sender.fault(), nullptr);
  }
}

// The slave knows its buffers without being told.
TEST(MemifLies, TheMasterMovesNoBufferOfTheSlaves) {
  TwoEnds ends({}, {.log2_slots = 4, .buffer_bytes = 256});
  ASSERT_EQ(ends.talk(), "");
  EXPECT_TRUE(send(ends.master->wire()->sender, frame_of(100, 5)));
  const Memory memory(ends);
  memory.to_slave().write(0, {0, 999, 100, 0xfffffff0, 0});
  EXPECT_EQ(take(ends.slave->wire()->receiver), Frames{frame_of(100, 5)});
  memory.to_slave().write(1, {0, 0, 257, 0, 0});
  memory.to_slave().tail().store(2);
  EXPECT_TRUE(take(ends.slave->wire()->receiver).empty());
  EXPECT_NE(ends.slave->wire()->receiver.fault(), nullptr);
}

TEST(MemifLies, AFrameThatDoesNotEnd) {
  TwoEnds ends({}, {.log2_slots = 4, .buffer_bytes = 4352});
  ASSERT_EQ(ends.talk(), "");
  const Memory memory(ends);
  for (std::size_t i = 0; i < 16; ++i) memory.to_master().write(i, {Descriptor::kNext, 0, 4000, 0, 0});
  memory.to_master().write(3, {0, 0, 1, 0, 0});  // one of 12,001 bytes, then one without an end
  memory.to_master().head().store(16);
  EXPECT_TRUE(take(ends.master->wire()->receiver).empty());
  EXPECT_NE(ends.master->wire()->receiver.fault(), nullptr);
}

TEST(MemifLies, OneThatIsTooLongIsPassedOver) {
  TwoEnds ends({}, {.log2_slots = 4, .buffer_bytes = 4352});
  ASSERT_EQ(ends.talk(), "");
  EXPECT_TRUE(send(ends.slave->wire()->sender, frame_of(Receiver::kMostFrame + 1, 5)));
  EXPECT_TRUE(send(ends.slave->wire()->sender, frame_of(Receiver::kMostFrame, 6)));
  EXPECT_EQ(take(ends.master->wire()->receiver), Frames{frame_of(Receiver::kMostFrame, 6)});
  EXPECT_EQ(ends.master->wire()->receiver.fault(), nullptr);
}

// Whatever stands there, each end stays within the memory (AddressSanitizer looks on), and does not work for ever.
TEST(MemifLies, AnyBytesInTheRings) {
  std::mt19937 random(14);
  for (int round = 0; round < 500; ++round) {
    TwoEnds ends({}, {.log2_slots = 4, .buffer_bytes = 256});
    ASSERT_EQ(ends.talk(), "");
    const Memory memory(ends);
    for (int step = 0; step < 20; ++step) {
      for (int i = 0; i < 8; ++i) {
        const std::size_t at = random() % Memory::kRing;
        memory.at[at] = static_cast<std::byte>(random() % 4 == 0 ? random() : random() % 3);
      }
      for (Handshake* each : {ends.master.get(), ends.slave.get()}) {
        Wire& wire = *each->wire();
        if (wire.sender.fault() == nullptr) static_cast<void>(send(wire.sender, frame_of(random() % 600 + 1, 1)));
        std::size_t sum = 0;
        if (wire.receiver.fault() != nullptr) continue;
        for (const auto& frame : take(wire.receiver)) sum += frame.size();
        EXPECT_LE(sum, 16U * 256U * 16U * 256U);
      }
    }
  }
}

}  // namespace
}  // namespace fairlead::soft::memif::test
