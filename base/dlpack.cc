#include "fairlead/dlpack.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>

namespace fairlead::inline v0 {
namespace {

// Type codes of DLPack 0.7 and 1.1, which older headers do not name. The numbers are part of DLPack's ABI.
constexpr std::uint8_t kBoolCode = 6;
constexpr std::uint8_t kFloat8E4M3FnCode = 10;
constexpr std::uint8_t kFloat8E5M2Code = 12;

struct Row {
  DType dtype;
  std::uint8_t code;
  std::uint8_t bits;
};

constexpr Row kRows[] = {
    {DType::kBool, kBoolCode, 8},
    {DType::kU8, kDLUInt, 8},
    {DType::kI8, kDLInt, 8},
    {DType::kF8E4M3, kFloat8E4M3FnCode, 8},
    {DType::kF8E5M2, kFloat8E5M2Code, 8},
    {DType::kI16, kDLInt, 16},
    {DType::kU16, kDLUInt, 16},
    {DType::kF16, kDLFloat, 16},
    {DType::kBF16, kDLBfloat, 16},
    {DType::kI32, kDLInt, 32},
    {DType::kU32, kDLUInt, 32},
    {DType::kF32, kDLFloat, 32},
    {DType::kI64, kDLInt, 64},
    {DType::kU64, kDLUInt, 64},
    {DType::kF64, kDLFloat, 64},
};

std::optional<DType> dtype_of(const DLDataType& type) {
  for (const Row& row : kRows) {
    if (row.code == type.code && row.bits == type.bits) return row.dtype;
  }
  return std::nullopt;
}

}  // namespace

Result<TensorSpec> from_dlpack(const DLTensor& tensor, const void* base) {
  if (tensor.device.device_type != kDLCPU) {
    return {Code::kUnimplemented, fmt::format("DLPack device type {} is not supported; legal: {} (CPU)",
                                              static_cast<int>(tensor.device.device_type), static_cast<int>(kDLCPU))};
  }
  if (tensor.dtype.lanes != 1) {
    return {Code::kUnimplemented, fmt::format("DLPack dtype has {} lanes; legal: 1", tensor.dtype.lanes)};
  }
  const std::optional<DType> dtype = dtype_of(tensor.dtype);
  if (!dtype) {
    return {Code::kUnimplemented, fmt::format("DLPack dtype (code {}, {} bits) has no equivalent; convert it first",
                                              tensor.dtype.code, tensor.dtype.bits)};
  }
  if (tensor.ndim < 0 || static_cast<std::size_t>(tensor.ndim) > kMaxTensorRank) {
    return {Code::kInvalidArgument,
            fmt::format("DLPack tensor has rank {}; legal: 0 to {}", tensor.ndim, kMaxTensorRank)};
  }
  const auto first = reinterpret_cast<std::uintptr_t>(tensor.data);
  const auto region = reinterpret_cast<std::uintptr_t>(base);
  std::uintptr_t address = 0;
  if (__builtin_add_overflow(first, tensor.byte_offset, &address) || address < region) {
    return {Code::kOutOfRange,
            "DLPack tensor's data lies below the region's first byte; pass the region that holds it"};
  }
  const std::span<const std::int64_t> shape(tensor.shape, static_cast<std::size_t>(tensor.ndim));
  auto spec = TensorSpec::contiguous(*dtype, shape, address - region);
  if (spec && tensor.strides != nullptr) {  // null means row-major contiguous
    for (std::size_t i = 0; i < shape.size(); ++i) spec->strides[i] = tensor.strides[i];
  }
  return spec;
}

Result<DLTensor> to_dlpack(TensorSpec& spec, void* base) {
  const auto index = static_cast<std::size_t>(spec.dtype) - 1;  // kRows is in the order of DType's values
  if (index >= std::size(kRows) || spec.rank > kMaxTensorRank) {
    return {Code::kInvalidArgument, fmt::format("tensor {} (rank {}) is not valid", spec.to_string(), spec.rank)};
  }
  DLTensor tensor{};
  tensor.data = base;
  tensor.device = {kDLCPU, 0};
  tensor.ndim = spec.rank;
  tensor.dtype = {kRows[index].code, kRows[index].bits, 1};
  tensor.shape = spec.shape.data();
  tensor.strides = spec.strides.data();
  tensor.byte_offset = spec.offset;
  return tensor;
}

}  // namespace fairlead::inline v0
