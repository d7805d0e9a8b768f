// Tensors of frameworks as registered memory, and registered memory as a framework's tensor: who owns what, and how
// long.
#include <array>
#include <memory>
#include <numeric>

#include "fairlead/dlpack.h"
#include "tests/conformance/engine_pair.h"

namespace fairlead {
namespace {

/// A framework's matrix of floats, 4 rows of 8 of which 6 columns are seen, perhaps from the last row to the first.
class Framework {
 public:
  explicit Framework(bool upside_down = false) {
    std::iota(storage_.begin(), storage_.end(), 0.0F);
    strides_[0] = upside_down ? -8 : 8;
    tensor.dl_tensor = {.data = storage_.data() + (upside_down ? 3 * 8 : 0),
                        .device = {kDLCPU, 0},
                        .ndim = 2,
                        .dtype = {kDLFloat, 32, 1},
                        .shape = shape_.data(),
                        .strides = strides_.data(),
                        .byte_offset = 0};
    tensor.manager_ctx = this;
    tensor.deleter = [](DLManagedTensor* self) { ++static_cast<Framework*>(self->manager_ctx)->deleted; };
  }
  [[nodiscard]] std::byte* first() { return reinterpret_cast<std::byte*>(storage_.data()); }

  DLManagedTensor tensor{};
  int deleted = 0;

 private:
  std::array<float, 32> storage_{};
  std::array<std::int64_t, 2> shape_{4, 6}, strides_{8, 1};
};

class EngineDlpack : public testing::Test, public EnginePair {
 protected:
  void SetUp() override {
    const EngineConfig config = config_for({"tcp", "tcp"});
    start(config, config);
  }
};

TEST_F(EngineDlpack, ATensorIsTakenOverAndLetGoOnce) {
  Framework framework;
  Result<TensorMemory> taken = adopt_dlpack(*client, &framework.tensor);
  ASSERT_TRUE(taken) << taken.error().to_string();
  EXPECT_EQ(taken->memory.data(), framework.first()) << "in place";
  EXPECT_EQ(taken->memory.size(), (3 * 8 + 6) * sizeof(float)) << "no byte that the tensor does not reach";
  EXPECT_EQ(taken->tensor.to_string(), "F32[4,6]");
  auto [landed, remote] = target("matrix", 24 * sizeof(float));
  const std::array<std::int64_t, 2> shape{4, 6};
  const TensorSpec dense = *TensorSpec::contiguous(DType::kF32, shape);
  Transfer transfer = peer.write_tensor(taken->memory, taken->tensor, remote, dense);
  taken = Status(Code::kInternal, "gone");
  ASSERT_TRUE(transfer.wait(kPatience).ok()) << transfer.status().to_string();
  const auto* got = reinterpret_cast<const float*>(landed.data());
  for (int i = 0; i < 24; ++i) EXPECT_EQ(got[i], static_cast<float>(i / 6 * 8 + i % 6)) << i;
  transfer = {};
  client->shutdown();
  EXPECT_EQ(framework.deleted, 1);
}

TEST_F(EngineDlpack, ATensorThatRunsBackwardsBeginsAtItsLowestByte) {
  Framework framework(true);
  {
    const Result<TensorMemory> taken = adopt_dlpack(*client, &framework.tensor);
    ASSERT_TRUE(taken) << taken.error().to_string();
    EXPECT_EQ(taken->memory.data(), framework.first());
    EXPECT_EQ(taken->tensor.offset, 3 * 8 * sizeof(float)) << "of its first element";
    EXPECT_TRUE(taken->tensor.check(taken->memory.size()).ok());
  }
  EXPECT_EQ(framework.deleted, 1);
}

TEST_F(EngineDlpack, WhatIsRefusedStaysTheCallers) {
  EXPECT_EQ(adopt_dlpack(*client, nullptr).status().code(), Code::kInvalidArgument);
  const auto refused = [&](const auto& spoil) {
    Framework framework;
    spoil(framework.tensor.dl_tensor);
    const Code code = adopt_dlpack(*client, &framework.tensor).status().code();
    EXPECT_EQ(framework.deleted, 0);
    return code;
  };
  EXPECT_EQ(refused([](DLTensor& t) { t.device.device_type = kDLCUDA; }), Code::kUnimplemented);
  EXPECT_EQ(refused([](DLTensor& t) { t.shape[0] = 0; }), Code::kInvalidArgument);
  EXPECT_EQ(refused([](DLTensor& t) { t.strides[0] = INT64_MAX; }), Code::kOutOfRange);
  EXPECT_EQ(refused([](DLTensor& t) { t.data = nullptr; }), Code::kInvalidArgument);
  client->shutdown();
  EXPECT_EQ(refused([](DLTensor&) {}), Code::kUnavailable);
}

// A DLManagedTensor cannot say that it is not to be written to.
TEST_F(EngineDlpack, ReadOnlyMemoryIsNotShared) {
  const std::array<float, 8> storage{};
  const auto bytes = std::as_bytes(std::span(storage));
  const Result<Memory> memory = client->register_memory({const_cast<std::byte*>(bytes.data()), bytes.size()},
                                                        Access::kRemoteRead | Access::kLocalReadOnly);
  ASSERT_TRUE(memory) << memory.error().to_string();
  const std::array<std::int64_t, 1> shape{8};
  EXPECT_EQ(share_dlpack(*memory, *TensorSpec::contiguous(DType::kF32, shape, 0)).status().code(),
            Code::kPermissionDenied);
}

TEST_F(EngineDlpack, SharedMemoryLivesUntilTheFrameworkLetsGo) {
  std::array<float, 8> storage{};
  bool released = false;
  DLManagedTensor* shared = nullptr;
  {
    const Result<Memory> memory = client->register_memory(std::as_writable_bytes(std::span(storage)),
                                                          Access::kRemoteReadWrite, [&] { released = true; });
    ASSERT_TRUE(memory);
    const std::array<std::int64_t, 2> shape{2, 3};
    const Result<DLManagedTensor*> given = share_dlpack(*memory, *TensorSpec::contiguous(DType::kF32, shape, 4));
    ASSERT_TRUE(given) << given.error().to_string();
    shared = *given;
    const TensorSpec large = *TensorSpec::contiguous(DType::kF32, shape, 12);
    EXPECT_EQ(share_dlpack(*memory, large).status().code(), Code::kOutOfRange);
    EXPECT_EQ(share_dlpack(Memory(), large).status().code(), Code::kInvalidArgument);
  }
  EXPECT_FALSE(released) << "the framework has it";
  EXPECT_EQ(shared->dl_tensor.data, storage.data());
  EXPECT_EQ(shared->dl_tensor.byte_offset, 4U);
  EXPECT_EQ(shared->dl_tensor.shape[1], 3);
  shared->deleter(shared);
  EXPECT_TRUE(released);
}

}  // namespace
}  // namespace fairlead
