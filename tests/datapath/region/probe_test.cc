// What paths are proved with: each way across has its own, and leaves nothing behind.
#include "datapath/region/probe.h"

#include <gtest/gtest.h>

#include "tests/datapath/counting_device.h"

namespace fairlead::datapath {
namespace {

const std::byte* end_of(std::span<const std::byte> bytes) { return bytes.data() + bytes.size(); }

TEST(ProbeMemory, IsSharedByNoTwo) {
  CountingDevice device;
  const Result<std::unique_ptr<Probe>> one = Probe::make(device);
  const Result<std::unique_ptr<Probe>> other = Probe::make(device);
  ASSERT_TRUE(one && other);
  ASSERT_EQ(device.granted.size(), 2U);
  const std::span first = device.granted.at((*one)->target().key).bytes;
  const std::span second = device.granted.at((*other)->target().key).bytes;
  EXPECT_EQ(first.size(), kProbeBytes);
  EXPECT_TRUE(end_of(first) <= second.data() || end_of(second) <= first.data());
  for (const auto& each : {&*one, &*other}) {
    const LocalSegment source = (*each)->source();
    EXPECT_EQ(source.length, kProbeBytes);
    const std::span target = device.granted.at((*each)->target().key).bytes;
    EXPECT_TRUE(end_of(target) <= source.data || source.data + source.length <= target.data())
        << "the peer writes what is sent";
    const MemoryDescriptor& known = device.registered.at(source.key);
    EXPECT_TRUE(known.bytes.data() <= source.data && source.data + source.length <= end_of(known.bytes));
  }
}

TEST(ProbeMemory, IsTakenBackWithIt) {
  CountingDevice device;
  {
    ASSERT_TRUE(Probe::make(device));
  }
  EXPECT_EQ(device.registered_ever, 1U);
  EXPECT_EQ(device.registered.size() + device.granted.size() + device.unknown, 0U);
}

TEST(ProbeMemory, LeavesNothingWhereItIsNotGranted) {
  CountingDevice device;
  device.on_grant = [&](const MemoryDescriptor&) { device.refuse = true; };
  EXPECT_EQ(Probe::make(device).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(device.registered_ever, 1U);
  EXPECT_EQ(device.registered.size() + device.granted.size() + device.unknown, 0U);
}

}  // namespace
}  // namespace fairlead::datapath
