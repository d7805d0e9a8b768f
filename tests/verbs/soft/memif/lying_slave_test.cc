// A master's device whose slave agrees as it should, and then does with memory and eventfds what it likes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <vector>

#include "base/system/unix_packets.h"
#include "tests/verbs/soft/memif/dial.h"
#include "verbs/soft/port/memif/memif_device.h"

namespace fairlead::soft::memif::test {
namespace {

using Frames = std::array<std::span<const std::byte>, 64>;

constexpr unsigned kLog2Slots = 4;

class MemifLyingSlave : public testing::Test {
 protected:
  void SetUp() override {
    const std::string name = "fairlead-memif-liar-" + std::to_string(::getpid());
    auto opened = MemifDevice::open({.role = Role::kMaster, .socket = name});
    ASSERT_TRUE(opened) << opened.error().message();
    device = std::move(*opened);
    socket = dial(name);
    for (int i = 0; i < 100 && !device->link_up(); ++i) {
      device->tend();
      hear();
    }
    device->tend();
    hear();
    ASSERT_TRUE(device->link_up());
    ASSERT_NE(slave->wire(), nullptr);
  }
  void hear() {
    std::array<std::byte, kMessageBytes> bytes;
    UniqueFd none;
    while (const auto got = receive_packet(socket.get(), bytes, none)) {
      const auto message = decode(std::span(bytes).first(*got));
      if (!message) return;
      const auto answer = slave->take(*message, std::move(none));
      ASSERT_TRUE(answer) << answer.error().message();
      if (!*answer) continue;
      ASSERT_TRUE(send_packet(socket.get(), encode((*answer)->message), (*answer)->descriptor));
    }
  }
  RingView to_slave() const {
    const std::size_t ring = RingView::bytes(kLog2Slots);
    return RingView(slave->wire()->regions.find(0, ring, ring));
  }
  void send_to_device(std::byte fill) const {
    Sender& sender = slave->wire()->sender;
    ASSERT_EQ(sender.copy(0, std::vector<std::byte>(1000, fill)), 1U);
    static_cast<void>(sender.publish(1));
  }
  std::size_t send_from_device() const {
    std::byte* room = nullptr;
    if (device->reserve({&room, 1}) != 1) return 0;
    std::memset(room, 5, 100);
    return device->send(std::array<std::uint32_t, 1>{100});
  }

  std::unique_ptr<MemifDevice> device;
  PrivateFd socket;
  std::unique_ptr<Handshake> slave = Handshake::of(Role::kSlave, {.log2_slots = kLog2Slots});
};

// A port answers questions in the middle of a burst.
TEST_F(MemifLyingSlave, WhatWasReceivedOutlivesAFaultOfSending) {
  for (const bool index : {true, false}) {
    if (!index) SetUp();
    send_to_device(std::byte{7});
    Frames frames;
    ASSERT_EQ(device->receive(frames), 1U);
    if (index) to_slave().head().store(100);
    if (!index) to_slave().write(0, {0, 9, 4352, 0, 0});
    EXPECT_EQ(send_from_device(), 0U);
    EXPECT_EQ(std::vector<std::byte>(frames[0].begin(), frames[0].end()), std::vector<std::byte>(1000, std::byte{7}));
    EXPECT_TRUE(device->link_up());
    EXPECT_EQ(device->receive(frames), 0U);
    EXPECT_FALSE(device->link_up()) << "it is let go as soon as can be";
    device.reset();
    slave = Handshake::of(Role::kSlave, {.log2_slots = kLog2Slots});
  }
}

TEST_F(MemifLyingSlave, BuffersWithoutRoomAreAFault) {
  for (std::size_t i = 0; i < 1U << kLog2Slots; ++i) to_slave().write(i, {0, 0, 0, 0, 0});
  EXPECT_EQ(send_from_device(), 0U);
  Frames frames;
  EXPECT_EQ(device->receive(frames), 0U);
  EXPECT_FALSE(device->link_up());
}

TEST_F(MemifLyingSlave, AFaultOfTheUrgentWayEndsBoth) {
  const std::size_t ring = RingView::bytes(kLog2Slots);
  RingView(slave->wire()->regions.find(0, 2 * ring, ring)).head().store(100);
  Frames frames;
  EXPECT_EQ(device->receive_urgent(frames), 0U);
  EXPECT_FALSE(device->link_up());
  EXPECT_EQ(device->receive_urgent(frames), 0U);
}

TEST_F(MemifLyingSlave, OneBufferGivenTwiceIsMovedWithin) {
  for (std::uint32_t i = 0; i < 1U << kLog2Slots; ++i) to_slave().write(i, {0, 0, 4352, 8192 + 10 * i, 0});
  std::array<std::byte*, 3> rooms;
  ASSERT_EQ(device->reserve(rooms), 3U);
  EXPECT_EQ(device->send(std::array<std::uint32_t, 3>{0, 4000, 4000}), 2U);  // AddressSanitizer looks on
}

// The flag that keeps writing to it from waiting is the slave's, too.
TEST_F(MemifLyingSlave, AFullEventfdKeepsNobody) {
  const int wakes = slave->wire()->wakes_us.get();
  const std::uint64_t most = 0xfffffffffffffffe;
  std::uint64_t before = 0;
  EXPECT_LE(::read(wakes, &before, sizeof before), static_cast<ssize_t>(sizeof before));
  ASSERT_EQ(::write(wakes, &most, sizeof most), static_cast<ssize_t>(sizeof most));
  ASSERT_EQ(::fcntl(wakes, F_SETFL, 0), 0);
  slave->wire()->receiver.want_to_be_woken(true);
  EXPECT_EQ(send_from_device(), 1U);
  Frames frames;
  EXPECT_EQ(slave->wire()->receiver.take(frames), 1U);
}

}  // namespace
}  // namespace fairlead::soft::memif::test
