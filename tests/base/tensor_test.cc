#include "fairlead/tensor.h"

#include <gtest/gtest.h>

#include <limits>

namespace fairlead {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();

TensorSpec make(DType dtype, std::initializer_list<std::int64_t> shape, std::uint64_t offset = 0) {
  auto spec = TensorSpec::contiguous(dtype, std::span(shape.begin(), shape.size()), offset);
  EXPECT_TRUE(spec.has_value()) << spec.status().to_string();
  return spec ? *spec : TensorSpec{};
}

TEST(DTypes, NamesGoBothWays) {
  for (int value = 1; value <= static_cast<int>(DType::kF64); ++value) {
    const auto dtype = static_cast<DType>(value);
    EXPECT_GT(element_size(dtype), 0u);
    EXPECT_EQ(dtype_from_string(to_string(dtype)), dtype);
  }
  EXPECT_EQ(element_size(static_cast<DType>(0)), 0u);
  EXPECT_EQ(element_size(static_cast<DType>(200)), 0u);
  EXPECT_EQ(to_string(static_cast<DType>(0)), "?");
  EXPECT_EQ(dtype_from_string("f32"), std::nullopt);
  EXPECT_EQ(to_string(DType::kBF16), "BF16");
  EXPECT_EQ(element_size(DType::kF64), 8u);
  EXPECT_EQ(element_size(DType::kU16), 2u);
}

TEST(TensorContiguous, RowMajor) {
  const TensorSpec spec = make(DType::kF32, {64, 3, 7, 7}, 128);
  EXPECT_EQ(spec.strides[0], 147);
  EXPECT_EQ(spec.strides[3], 1);
  EXPECT_EQ(spec.element_count(), 9408u);
  EXPECT_EQ(spec.byte_count(), 37632u);
  EXPECT_TRUE(spec.is_contiguous());
  EXPECT_EQ(spec.to_string(), "F32[64,3,7,7]");
}

TEST(TensorContiguous, ScalarAndEmpty) {
  const TensorSpec scalar = make(DType::kF64, {});
  EXPECT_EQ(scalar.element_count(), 1u);
  EXPECT_TRUE(scalar.check(8).ok());
  EXPECT_FALSE(scalar.check(7).ok());
  const TensorSpec empty = make(DType::kF64, {4, 0, 5});
  EXPECT_EQ(empty.byte_count(), 0u);
  EXPECT_TRUE(empty.is_contiguous());
  EXPECT_TRUE(empty.check(0).ok());
}

TEST(TensorContiguous, RefusesWhatCannotBe) {
  const std::int64_t nine[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_EQ(TensorSpec::contiguous(DType::kU8, nine).status().code(), Code::kInvalidArgument);
  const std::int64_t negative[] = {2, -1};
  EXPECT_EQ(TensorSpec::contiguous(DType::kU8, negative).status().code(), Code::kInvalidArgument);
  const std::int64_t huge[] = {kMax};
  EXPECT_TRUE(TensorSpec::contiguous(DType::kU8, huge).has_value());  // exactly 2^63 - 1 bytes
  EXPECT_EQ(TensorSpec::contiguous(DType::kU16, huge).status().code(), Code::kInvalidArgument);
  const std::int64_t product[] = {std::int64_t{1} << 32, std::int64_t{1} << 31};
  EXPECT_EQ(TensorSpec::contiguous(DType::kU8, product).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(TensorSpec::contiguous(static_cast<DType>(99), huge).status().code(), Code::kInvalidArgument);
}

TEST(TensorCheck, BoundsToTheByte) {
  const TensorSpec spec = make(DType::kF32, {2, 3}, 10);
  EXPECT_TRUE(spec.check(34).ok());
  EXPECT_EQ(spec.check(33).code(), Code::kOutOfRange);
  EXPECT_EQ(make(DType::kU8, {0}, 10).check(9).code(), Code::kOutOfRange);
}

TEST(TensorCheck, NegativeStridesLookBackwards) {
  TensorSpec spec = make(DType::kU8, {4}, 3);
  spec.strides[0] = -1;
  EXPECT_TRUE(spec.check(4).ok());
  EXPECT_FALSE(spec.is_contiguous());
  spec.offset = 2;
  EXPECT_EQ(spec.check(4).code(), Code::kOutOfRange);
}

TEST(TensorCheck, NothingOverflows) {
  TensorSpec spec = make(DType::kF64, {2, 2, 2, 2, 2, 2, 2, 2});
  const std::uint64_t region = std::numeric_limits<std::uint64_t>::max();
  for (auto& stride : spec.strides) stride = kMin;
  EXPECT_EQ(spec.check(region).code(), Code::kOutOfRange);
  for (auto& stride : spec.strides) stride = kMax;
  EXPECT_EQ(spec.check(region).code(), Code::kOutOfRange);
  for (auto& dim : spec.shape) dim = kMax;
  EXPECT_EQ(spec.check(region).code(), Code::kInvalidArgument);
  spec = make(DType::kF64, {});
  spec.offset = region;
  EXPECT_EQ(spec.check(region).code(), Code::kOutOfRange);
}

TEST(TensorCheck, RefusesBytesFromTheWire) {
  TensorSpec spec;
  spec.rank = 200;
  EXPECT_EQ(spec.check(100).code(), Code::kInvalidArgument);
  EXPECT_FALSE(spec.to_string().empty());
  spec = make(DType::kU8, {3});
  spec.shape[0] = -3;
  EXPECT_EQ(spec.check(100).code(), Code::kInvalidArgument);
  spec.shape[0] = 3;
  spec.dtype = static_cast<DType>(0);
  EXPECT_EQ(spec.check(100).code(), Code::kInvalidArgument);
}

TEST(TensorContiguity, StridesOfOneAreFree) {
  TensorSpec spec = make(DType::kU8, {5, 1, 4});
  spec.strides[1] = 12345;
  EXPECT_TRUE(spec.is_contiguous());
  spec.strides[0] = 5;
  EXPECT_FALSE(spec.is_contiguous());
}

}  // namespace
}  // namespace fairlead
