// What a device does with memory: one registration, many grants, each withdrawn by itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/conformance/transport_fixture.h"

namespace fairlead::conformance {
namespace {

/// A model of tensors in one allocation at the passive end, and a source at the active one.
class TransportMemoryTest : public TransportTest {
 protected:
  static constexpr std::size_t kTensors = 64, kBytes = 1000;  // no multiple of a page or a line

  void SetUp() override {
    TransportTest::SetUp();
    if (HasFatalFailure()) return;
    registration_ = *b.device->register_memory({.bytes = model_, .access = Access::kRemoteReadWrite});
    for (std::size_t i = 0; i < kTensors; ++i) {
      auto grant = b.device->grant({.bytes = tensor(i), .access = Access::kRemoteWrite});
      ASSERT_TRUE(grant.has_value()) << grant.status().to_string();
      grants_.push_back(*grant);
    }
    connect();
  }
  void TearDown() override {
    for (const auto& grant : grants_) b.device->revoke(grant);
    b.device->deregister(registration_);
    TransportTest::TearDown();
  }

  std::span<std::byte> tensor(std::size_t i) { return std::span(model_).subspan(i * kBytes, kBytes); }
  /// Writes all of tensor i, and `extra` bytes, through a grant.
  Code write(Buffer& from, const Grant& grant, std::size_t extra = 0) {
    const LocalSegment segment = from.segment(0, kBytes + extra);
    const std::uint64_t id = a.posted;
    a.post({.id = id,
            .kind = OpKind::kWrite,
            .local = {&segment, 1},
            .remote_address = grant.address,
            .remote_key = grant.key});
    EXPECT_TRUE(pump([&] { return a.code_of(id).has_value(); }));
    return a.code_of(id).value_or(Code::kInternal);
  }
  bool holds(std::size_t i, std::uint64_t seed) { return is_pattern(tensor(i), seed); }
  bool untouched(std::size_t i) { return are_all(tensor(i), std::byte{0}); }

  std::vector<std::byte> model_ = std::vector<std::byte>(kTensors * kBytes);
  Registration registration_;
  std::vector<Grant> grants_;
};

TEST_P(TransportMemoryTest, AModelIsOneRegistration) {
  const datapath::DeviceUsage usage = b.device->usage();
  EXPECT_EQ(usage.grants, kTensors);
  // Hardware knows nothing smaller to withdraw than a registration.
  EXPECT_EQ(usage.registrations, b.device->capabilities().grants_are_entries ? 1u : 1u + kTensors);
  Buffer from(a, kBytes);
  from.fill(3);
  for (std::size_t i = 0; i < kTensors; ++i) {
    ASSERT_EQ(write(from, grants_[i]), Code::kOk);
    ASSERT_TRUE(holds(i, 3));
  }
}

TEST_P(TransportMemoryTest, AGrantIsWithdrawnAlone) {
  Buffer from(a, kBytes);
  from.fill(4);
  const Grant gone = grants_[7];
  b.device->revoke(gone);
  grants_.erase(grants_.begin() + 7);
  EXPECT_EQ(b.device->usage().grants, kTensors - 1);
  for (const Grant& grant : grants_) ASSERT_EQ(write(from, grant), Code::kOk);
  EXPECT_EQ(write(from, gone), Code::kProtectionError);  // the last, as it may cost the path
  for (std::size_t i = 0; i < kTensors; ++i) EXPECT_TRUE(i == 7 ? untouched(i) : holds(i, 4)) << i;
}

TEST_P(TransportMemoryTest, AGrantEndsWhereItsTensorEnds) {
  Buffer from(a, kBytes + 1);
  from.fill(5);
  EXPECT_EQ(write(from, grants_[7], 1), Code::kProtectionError);
  EXPECT_TRUE(untouched(8));
}

TEST_P(TransportMemoryTest, TheRegistrationItselfGivesPeersNothing) {
  Buffer from(a, kBytes);
  from.fill(6);
  EXPECT_EQ(write(from, {.address = grants_[7].address, .key = registration_.local}), Code::kProtectionError);
  EXPECT_TRUE(untouched(7));
}

TEST_P(TransportMemoryTest, OtherKindsAreRefusedForNow) {
  std::vector<std::byte> bytes(100);
  const auto status_of = [&](datapath::MemoryKind kind) {
    return b.device->register_memory({.bytes = bytes, .kind = kind}).status();
  };
  const Status cuda = status_of(datapath::CudaMemory{.ordinal = 3, .range = bytes});
  EXPECT_EQ(cuda.code(), Code::kUnimplemented);
  EXPECT_THAT(cuda.message(), testing::HasSubstr("does not reach memory of CUDA device 3"));
  const Status huge = status_of(datapath::HugeMemory{.page_bytes = 1 << 30});
  EXPECT_EQ(huge.code(), Code::kUnimplemented);
  EXPECT_THAT(huge.message(), testing::HasSubstr("huge pages of 1073741824 bytes; register it as host memory"));
  EXPECT_EQ(b.device->register_memory({}).status().code(), Code::kInvalidArgument);
  const auto file = b.device->register_memory({.bytes = bytes, .kind = datapath::FileMemory{}});
  ASSERT_TRUE(file.has_value()) << file.status().to_string();
  b.device->deregister(*file);
}

INSTANTIATE_TEST_SUITE_P(All, TransportMemoryTest, testing::ValuesIn(transport_cases()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace fairlead::conformance
