// A peer's staged operations on memory of a GPU: placed later, acknowledged then, and never after they were withdrawn.
#include "datapath/flow/device_target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "datapath/flow/staging.h"
#include "tests/gpu/cuda_double.h"

namespace fairlead::datapath::staging {
namespace {

using gpu::testing::CudaDouble;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::size_t kSlot = DeviceStaging::kLeastSlot;

class DeviceTargetTest : public testing::Test {
 protected:
  DeviceTargetTest() {
    driver = cuda.install();
    auto pinned = gpu::PinnedMemory::allocate(driver, 0, DeviceStaging::kLeast);
    auto range = table->add({.bytes = (*pinned)->bytes(), .access = Access::kNone});
    through.emplace(driver, std::move(*pinned), *range);
    device = cuda.allocate(8 * kSlot);
    const Result<gpu::MemoryFacts> facts = driver->facts_of(device);
    auto registered = table->add(
        {.bytes = device,
         .kind = CudaMemory{.ordinal = 0, .range = facts->range, .context = facts->context, .driver = driver},
         .access = Access::kRemoteReadWrite});
    region = std::make_shared<RegionImpl>(*registered, device, Access::kRemoteReadWrite, nullptr);
    EXPECT_TRUE(table->publish("gpu", region, device, Access::kRemoteReadWrite, std::nullopt).ok());
    EXPECT_TRUE(table->seen_by("").find("gpu", [&](const Publication& found) { id = found.id; }).ok());
  }
  ~DeviceTargetTest() override {
    cuda.let_copies_go();
    target.reset();
    device_target.reset();
    EXPECT_EQ(through->taken(DeviceStaging::Side::kPeers), 0u);
    through->copier().finish();
    table->shutdown();
    region.reset();
    through.reset();
    driver.reset();
    gpu::replace_process_driver(nullptr);
    EXPECT_THAT(cuda.violations(), IsEmpty());
    EXPECT_EQ(cuda.live_objects(), 0u);
  }

  bool try_write(std::uint64_t sequence, std::uint64_t offset, std::size_t size, std::uint8_t fill) {
    const std::vector<std::byte> bytes(size, static_cast<std::byte>(fill));
    PathMessage message;
    message.type = MessageType::kStagedWrite;
    message.sequence = sequence;
    message.value = id;
    message.offset = offset;
    message.data = bytes;
    return target->on_write(message, table->seen_by(""), why);
  }
  void write(std::uint64_t sequence, std::uint64_t offset, std::size_t size, std::uint8_t fill) {
    ASSERT_TRUE(try_write(sequence, offset, size, fill)) << why;
  }
  void read(std::uint64_t sequence, std::uint64_t offset, std::uint32_t length) {
    read(*target, id, sequence, offset, length);
  }
  void read(Target& from, std::uint64_t of, std::uint64_t sequence, std::uint64_t offset, std::uint32_t length) {
    PathMessage message;
    message.type = MessageType::kStagedReadRequest;
    message.sequence = sequence;
    message.value = of;
    message.offset = offset;
    message.length = length;
    ASSERT_TRUE(from.on_read(message, why)) << why;
  }
  struct Said {
    MessageType type;
    std::uint64_t sequence;
    Code code;
    std::vector<std::byte> data;
    bool operator==(const Said&) const = default;
  };
  static Said ack(std::uint64_t sequence, Code code = Code::kOk) {
    return {MessageType::kStagedAck, sequence, code, {}};
  }
  /// What is said, as long as the path has room.
  std::vector<Said> pump(std::size_t room = 1000) { return pump(*target, room); }
  std::vector<Said> pump(Target& one, std::size_t room) {
    std::vector<Said> said;
    one.pump(table->seen_by(""), kPathHeaderBytes + kSlot, [&](const PathMessage& out) {
      if (said.size() == room) return false;
      said.push_back({out.type, out.sequence, out.code, {out.data.begin(), out.data.end()}});
      return true;
    });
    return said;
  }
  /// Everything that is said until nothing is owed.
  std::vector<Said> pump_until_done() {
    std::vector<Said> all;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (target->has_work() && std::chrono::steady_clock::now() < deadline) {
      through->copier().poll();
      for (Said& each : pump()) all.push_back(std::move(each));
      std::this_thread::yield();
    }
    EXPECT_FALSE(target->has_work());
    return all;
  }
  std::byte held(std::size_t at) { return cuda.shadow(device)[at]; }

  CudaDouble cuda;
  std::shared_ptr<gpu::Driver> driver;
  std::shared_ptr<RegionTable> table = std::make_shared<RegionTable>();
  std::optional<DeviceStaging> through;
  std::span<std::byte> device;
  std::shared_ptr<RegionImpl> region;
  std::uint64_t id = 0;
  int moved = 0;
  std::optional<DeviceTarget> device_target{std::in_place, [this] { return through ? &*through : nullptr; },
                                            [this] { ++moved; }};
  std::optional<Target> target{std::in_place, &*device_target};
  std::string why;
};

TEST_F(DeviceTargetTest, AcknowledgesWhatHasBeenCopied) {
  cuda.hold_copies();
  write(1, 0, 1000, 1);
  write(2, 1000, 1000, 2);
  EXPECT_THAT(pump(), IsEmpty());
  EXPECT_TRUE(target->copies());
  EXPECT_EQ(held(0), std::byte{0});
  cuda.let_copies_go();
  EXPECT_THAT(pump_until_done(), ElementsAre(ack(2)));
  EXPECT_FALSE(target->copies());
  EXPECT_EQ(held(999), std::byte{1});
  EXPECT_EQ(held(1000), std::byte{2});
  EXPECT_EQ(cuda.calls("copy_to_device"), 1u) << "what follows each other goes in one copy";
  EXPECT_GE(moved, 1);
}

TEST_F(DeviceTargetTest, KeepsWhatThereAreNoSlotsFor) {
  cuda.hold_copies();
  for (std::uint64_t i = 0; i < 6; ++i) write(i + 1, i * kSlot, kSlot, static_cast<std::uint8_t>(i + 1));
  EXPECT_THAT(pump(), IsEmpty());
  EXPECT_EQ(cuda.calls("copy_to_device"), 2u) << "half of four slots are for peers";
  cuda.let_copies_go();
  const std::vector<Said> said = pump_until_done();
  ASSERT_FALSE(said.empty());
  EXPECT_EQ(said.back(), ack(6));
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(held((i + 1) * kSlot - 1), static_cast<std::byte>(i + 1));
}

// Whoever does not wait for acknowledgements would make us keep what it sends without end.
TEST_F(DeviceTargetTest, WhatIsNotAcknowledgedIsBounded) {
  cuda.hold_copies();
  std::uint64_t sequence = 0;
  while (sequence < kWindow + kReads) {
    ++sequence;
    write(sequence, 2 * sequence, 1, 1);  // none follows another
  }
  EXPECT_FALSE(try_write(sequence + 1, 0, 1, 1));
  EXPECT_EQ(why, "sent staged operation 273 where 0 are acknowledged, and 256 may be under way");
  cuda.let_copies_go();
  EXPECT_EQ(pump_until_done().back(), ack(sequence));
  write(sequence + 1, 0, 1, 1);
}

// Reads of the host's memory are answered before a write that is still copied: with its refusal they are over, too, and
// the peer may have begun as many others before it is told of more.
TEST_F(DeviceTargetTest, ReadsThatOvertookARefusalLeaveTheirRoom) {
  std::vector<std::byte> host(1);
  auto range = table->add({.bytes = host, .access = Access::kRemoteRead});
  auto of_host = std::make_shared<RegionImpl>(*range, host, Access::kRemoteRead, nullptr);
  ASSERT_TRUE(table->publish("host", of_host, host, Access::kRemoteRead, std::nullopt).ok());
  std::uint64_t host_id = 0;
  ASSERT_TRUE(table->seen_by("").find("host", [&](const Publication& found) { host_id = found.id; }).ok());
  cuda.hold_copies();
  cuda.break_copy();
  write(1, 0, 1, 1);
  for (std::uint64_t i = 2; i < 2 + kReads; ++i) read(*target, host_id, i, 0, 1);
  std::size_t answered = 0;
  for (std::size_t i = 0; i < kReads; ++i) answered += pump().size();
  ASSERT_EQ(answered, kReads);
  cuda.let_copies_go();
  through->copier().finish();
  ASSERT_THAT(pump(1), ElementsAre(ack(1, Code::kProtectionError)));
  cuda.hold_copies();
  const std::uint64_t oldest = 2 + kReads;  // that the peer waits for
  for (std::uint64_t i = oldest; i < oldest + kWindow; ++i) write(i, 2 * i, 1, 1);
  EXPECT_FALSE(try_write(oldest + kWindow, 0, 1, 1));
}

// A write that lies across slots is placed when all of it is.
TEST_F(DeviceTargetTest, AWriteMayNeedTwoSlots) {
  cuda.hold_copies();
  write(1, 0, kSlot - 100, 1);
  write(2, kSlot - 100, 200, 2);
  EXPECT_THAT(pump(), IsEmpty());
  EXPECT_EQ(cuda.calls("copy_to_device"), 2u);
  cuda.break_copy(0);  // of those that come
  write(3, 0, 10, 3);
  cuda.let_copies_go();
  std::vector<Said> said = pump_until_done();
  ASSERT_FALSE(said.empty());
  EXPECT_EQ(said.back(), ack(3, Code::kProtectionError));
  said.pop_back();
  EXPECT_THAT(said, testing::Each(testing::Field(&Said::code, Code::kOk)));
  EXPECT_EQ(held(kSlot + 99), std::byte{2});
}

// A refusal says that all before it is done, so it waits for that.
TEST_F(DeviceTargetTest, ARefusalDoesNotOvertakeCopies) {
  cuda.hold_copies();
  write(1, 0, 100, 1);
  write(2, device.size(), 100, 2);  // out of bounds
  EXPECT_THAT(pump(), IsEmpty());
  cuda.let_copies_go();
  EXPECT_THAT(pump_until_done(), ElementsAre(ack(2, Code::kProtectionError)));
  EXPECT_EQ(held(0), std::byte{1});
}

TEST_F(DeviceTargetTest, NothingIsCopiedOnceItIsWithdrawn) {
  write(1, 0, 100, 1);
  ASSERT_TRUE(table->unpublish("gpu"));
  EXPECT_THAT(pump_until_done(), ElementsAre(ack(1, Code::kProtectionError)));
  EXPECT_EQ(cuda.calls("copy_to_device"), 0u);
  EXPECT_EQ(held(0), std::byte{0});
}

TEST_F(DeviceTargetTest, AReadShowsWhatWasWrittenBefore) {
  write(1, 0, 100, 7);
  read(2, 50, 20);
  const std::vector<Said> said = pump_until_done();
  ASSERT_EQ(said.size(), 2u);
  const auto& data = said[said[0].type == MessageType::kStagedReadData ? 0 : 1];
  EXPECT_EQ(data.sequence, 2u);
  EXPECT_EQ(data.data, std::vector<std::byte>(20, std::byte{7}));
}

TEST_F(DeviceTargetTest, ReadsWaitForSlots) {
  for (std::uint64_t i = 0; i < 8; ++i) cuda.shadow(device)[i * kSlot] = static_cast<std::byte>(i + 1);
  for (std::uint64_t i = 0; i < 8; ++i) read(i + 1, i * kSlot, kSlot);
  const std::vector<Said> said = pump_until_done();
  std::vector<std::byte> firsts;
  for (const Said& each : said) {
    if (each.type == MessageType::kStagedReadData) firsts.push_back(each.data.front());
  }
  ASSERT_EQ(firsts.size(), 8u);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(firsts[i], static_cast<std::byte>(i + 1));
}

// A peer that does not take what it asked for keeps no slots that others wait for, and loses nothing.
TEST_F(DeviceTargetTest, WhatWaitsForThePathLeavesSlotsToOthers) {
  for (std::uint64_t i = 0; i < 4; ++i) cuda.shadow(device)[i * kSlot + 9] = static_cast<std::byte>(i + 1);
  DeviceTarget other_device([this] { return &*through; }, [] {});
  Target other(&other_device);
  for (std::uint64_t i = 0; i < 4; ++i) read(i + 1, i * kSlot, kSlot);
  for (int i = 0; i < 4; ++i) {
    EXPECT_THAT(pump(0), IsEmpty());
    through->copier().finish();
  }
  EXPECT_THAT(pump(0), IsEmpty());
  EXPECT_EQ(through->taken(DeviceStaging::Side::kPeers), 1u) << "of two";
  read(other, id, 1, kSlot, 10);
  EXPECT_THAT(pump(other, 1000), ElementsAre(ack(1)));
  through->copier().finish();
  const std::vector<Said> said = pump(other, 1000);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].data.back(), std::byte{2});
  std::vector<std::byte> tenths;
  for (const Said& each : pump_until_done()) {
    if (each.type == MessageType::kStagedReadData) tenths.push_back(each.data[9]);
  }
  EXPECT_THAT(tenths, ElementsAre(std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}));
}

TEST_F(DeviceTargetTest, AReadThatFailsIsRefused) {
  cuda.break_copy();
  read(1, 0, 100);
  const std::vector<Said> said = pump_until_done();
  EXPECT_THAT(said, testing::Contains(Said{MessageType::kStagedReadData, 1, Code::kProtectionError, {}}));
}

// The path is gone: what has begun keeps its slot to its end, what has not never begins.
TEST_F(DeviceTargetTest, ALostPathLeavesCopiesToTheirEnd) {
  cuda.hold_copies();
  write(1, 0, 100, 1);
  read(2, 200, 100);
  EXPECT_THAT(pump(), IsEmpty());
  write(3, 1000, 100, 3);
  target->reset();
  EXPECT_TRUE(target->copies());
  EXPECT_FALSE(target->owes());
  cuda.let_copies_go();
  through->copier().finish();
  EXPECT_FALSE(target->copies());
  EXPECT_EQ(held(0), std::byte{1});
  EXPECT_EQ(held(1000), std::byte{0});
  write(1, 0, 100, 4);  // another path, and its numbers
  EXPECT_THAT(pump_until_done(), ElementsAre(ack(1)));
  EXPECT_EQ(held(0), std::byte{4});
}

}  // namespace
}  // namespace fairlead::datapath::staging
