#include "fairlead/dlpack.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace fairlead {
namespace {

struct Fixture {
  std::vector<float> storage = std::vector<float>(64);
  std::array<std::int64_t, 2> shape{4, 6};
  std::array<std::int64_t, 2> strides{8, 1};
  DLTensor tensor{};

  Fixture() {
    tensor.data = storage.data() + 4;
    tensor.device = {kDLCPU, 0};
    tensor.ndim = 2;
    tensor.dtype = {kDLFloat, 32, 1};
    tensor.shape = shape.data();
    tensor.strides = strides.data();
    tensor.byte_offset = 8;
  }
};

TEST(DlpackImport, KeepsStridesAndOffset) {
  Fixture f;
  const auto spec = from_dlpack(f.tensor, f.storage.data());
  ASSERT_TRUE(spec.has_value()) << spec.status().to_string();
  EXPECT_EQ(spec->to_string(), "F32[4,6]");
  EXPECT_EQ(spec->strides[0], 8);
  EXPECT_EQ(spec->offset, 24u);
  EXPECT_FALSE(spec->is_contiguous());
}

TEST(DlpackImport, NullStridesMeanContiguous) {
  Fixture f;
  f.tensor.strides = nullptr;
  const auto spec = from_dlpack(f.tensor, f.storage.data());
  ASSERT_TRUE(spec.has_value());
  EXPECT_TRUE(spec->is_contiguous());
}

TEST(DlpackImport, RefusesWhatItCannotDescribe) {
  const auto code_after = [](auto spoil) {
    Fixture f;
    spoil(f);
    return from_dlpack(f.tensor, f.storage.data()).status().code();
  };
  EXPECT_EQ(code_after([](Fixture& f) { f.tensor.device.device_type = kDLCUDA; }), Code::kUnimplemented);
  EXPECT_EQ(code_after([](Fixture& f) { f.tensor.dtype.lanes = 4; }), Code::kUnimplemented);
  EXPECT_EQ(code_after([](Fixture& f) { f.tensor.dtype.code = kDLComplex; }), Code::kUnimplemented);
  EXPECT_EQ(code_after([](Fixture& f) { f.tensor.ndim = 9; }), Code::kInvalidArgument);
  EXPECT_EQ(code_after([](Fixture& f) { f.tensor.ndim = -1; }), Code::kInvalidArgument);
  EXPECT_EQ(code_after([](Fixture& f) { f.shape[0] = -4; }), Code::kInvalidArgument);
  EXPECT_EQ(code_after([](Fixture& f) { f.tensor.data = f.storage.data() - 16; }), Code::kOutOfRange);
  EXPECT_EQ(code_after([](Fixture& f) { f.tensor.byte_offset = ~std::uint64_t{0}; }), Code::kOutOfRange);
}

TEST(DlpackExport, GoesThereAndBackForEveryDtype) {
  std::vector<std::byte> region(4096);
  for (int value = 1; value <= static_cast<int>(DType::kF64); ++value) {
    const std::int64_t shape[] = {3, 5};
    auto spec = TensorSpec::contiguous(static_cast<DType>(value), shape, 64);
    ASSERT_TRUE(spec.has_value());
    const auto exported = to_dlpack(*spec, region.data());
    ASSERT_TRUE(exported.has_value());
    EXPECT_EQ(exported->dtype.bits, element_size(spec->dtype) * 8);
    const auto back = from_dlpack(*exported, region.data());
    ASSERT_TRUE(back.has_value()) << value << ": " << back.status().to_string();
    EXPECT_EQ(back->dtype, spec->dtype);
    EXPECT_EQ(back->offset, 64u);
    EXPECT_EQ(back->shape, spec->shape);
    EXPECT_EQ(back->strides, spec->strides);
  }
}

TEST(DlpackExport, RefusesAnInvalidSpec) {
  TensorSpec spec;
  spec.dtype = static_cast<DType>(0);
  EXPECT_FALSE(to_dlpack(spec, nullptr).has_value());
}

}  // namespace
}  // namespace fairlead
