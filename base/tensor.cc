#include "fairlead/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "base/tensor_reach.h"

namespace fairlead::inline v0 {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  std::uint32_t size;
};

constexpr DTypeRow kDTypes[] = {
    {DType::kBool, "BOOL", 1},      {DType::kU8, "U8", 1},   {DType::kI8, "I8", 1},   {DType::kF8E4M3, "F8_E4M3", 1},
    {DType::kF8E5M2, "F8_E5M2", 1}, {DType::kI16, "I16", 2}, {DType::kU16, "U16", 2}, {DType::kF16, "F16", 2},
    {DType::kBF16, "BF16", 2},      {DType::kI32, "I32", 4}, {DType::kU32, "U32", 4}, {DType::kF32, "F32", 4},
    {DType::kI64, "I64", 8},        {DType::kU64, "U64", 8}, {DType::kF64, "F64", 8},
};

constexpr std::int64_t kMaxBytes = std::numeric_limits<std::int64_t>::max();

// Values are dense from 1, so that a table lookup is an index.
const DTypeRow* row_of(DType dtype) noexcept {
  const auto index = static_cast<std::size_t>(dtype) - 1;
  return index < std::size(kDTypes) ? &kDTypes[index] : nullptr;
}

std::string shape_text(std::span<const std::int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ",")); }

}  // namespace

std::uint32_t element_size(DType dtype) noexcept {
  const DTypeRow* row = row_of(dtype);
  return row != nullptr ? row->size : 0;
}

std::string_view to_string(DType dtype) noexcept {
  const DTypeRow* row = row_of(dtype);
  return row != nullptr ? row->name : "?";
}

std::optional<DType> dtype_from_string(std::string_view name) noexcept {
  const auto* row = std::find_if(std::begin(kDTypes), std::end(kDTypes), [&](const auto& r) { return r.name == name; });
  if (row == std::end(kDTypes)) return std::nullopt;
  return row->dtype;
}

Result<TensorSpec> TensorSpec::contiguous(DType dtype, std::span<const std::int64_t> shape, std::uint64_t offset) {
  const std::int64_t size = element_size(dtype);
  if (size == 0) return {Code::kInvalidArgument, fmt::format("{} is not a dtype", static_cast<int>(dtype))};
  if (shape.size() > kMaxTensorRank) {
    return {Code::kInvalidArgument, fmt::format("tensor has rank {}; at most {} are supported: merge dimensions",
                                                shape.size(), kMaxTensorRank)};
  }
  TensorSpec spec;
  spec.dtype = dtype;
  spec.rank = static_cast<std::uint8_t>(shape.size());
  spec.offset = offset;
  // A dimension of 0 counts as 1 here, as in NumPy: the strides must be sound although no element uses them.
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] < 0) {
      return {Code::kInvalidArgument, fmt::format("tensor shape {} has a negative dimension", shape_text(shape))};
    }
    spec.shape[i] = shape[i];
    spec.strides[i] = stride;
    if (__builtin_mul_overflow(stride, std::max<std::int64_t>(shape[i], 1), &stride) || stride > kMaxBytes / size) {
      return {Code::kInvalidArgument,
              fmt::format("tensor {}{} is larger than 2^63 - 1 bytes", fairlead::to_string(dtype), shape_text(shape))};
    }
  }
  return spec;
}

std::uint64_t TensorSpec::element_count() const noexcept {
  std::uint64_t count = 1;
  bool overflow = false;
  for (std::size_t i = 0; i < std::min<std::size_t>(rank, kMaxTensorRank); ++i) {
    if (shape[i] <= 0) return 0;
    overflow |= __builtin_mul_overflow(count, static_cast<std::uint64_t>(shape[i]), &count);
  }
  return overflow ? std::numeric_limits<std::uint64_t>::max() : count;  // check() refuses such a tensor
}

std::uint64_t TensorSpec::byte_count() const noexcept {
  std::uint64_t bytes = 0;
  const bool overflow = __builtin_mul_overflow(element_count(), std::uint64_t{element_size(dtype)}, &bytes);
  return overflow ? std::numeric_limits<std::uint64_t>::max() : bytes;
}

bool TensorSpec::is_contiguous() const noexcept {
  if (element_count() == 0) return true;
  std::int64_t expected = 1;
  for (std::size_t i = std::min<std::size_t>(rank, kMaxTensorRank); i-- > 0;) {
    if (shape[i] == 1) continue;  // its stride is never used
    if (strides[i] != expected) return false;
    if (__builtin_mul_overflow(expected, shape[i], &expected)) return false;
  }
  return true;
}

Status TensorSpec::check(std::uint64_t region_bytes) const {
  const std::int64_t size = element_size(dtype);
  if (size == 0) return {Code::kInvalidArgument, fmt::format("{} is not a dtype", static_cast<int>(dtype))};
  if (rank > kMaxTensorRank) {
    return {Code::kInvalidArgument, fmt::format("tensor has rank {}; at most {} are supported", rank, kMaxTensorRank)};
  }
  for (std::size_t i = 0; i < rank; ++i) {
    if (shape[i] < 0) {
      return {Code::kInvalidArgument,
              fmt::format("tensor shape {} has a negative dimension", shape_text(std::span(shape).first(rank)))};
    }
  }
  if (byte_count() > static_cast<std::uint64_t>(kMaxBytes)) {
    return {Code::kInvalidArgument, fmt::format("tensor {} is larger than 2^63 - 1 bytes", to_string())};
  }
  const auto outside = [&] {
    return Status(Code::kOutOfRange, fmt::format("tensor {} at offset {} does not fit a region of {} bytes",
                                                 to_string(), offset, region_bytes));
  };
  if (offset > region_bytes) return outside();
  if (element_count() == 0) return {};
  const std::optional<TensorReach> reach = reach_of(*this);
  if (!reach || reach->low * size + offset < 0 || (reach->high + 1) * size + offset > region_bytes) return outside();
  return {};
}

std::string TensorSpec::to_string() const {
  return fmt::format("{}{}", fairlead::to_string(dtype),
                     shape_text(std::span(shape).first(std::min<std::size_t>(rank, kMaxTensorRank))));
}

}  // namespace fairlead::inline v0

namespace fairlead {

// Each term is below 2^126; the sums are kept below 2^65.
std::optional<TensorReach> reach_of(const TensorSpec& tensor) noexcept {
  TensorReach reach;
  for (std::size_t i = 0; i < tensor.rank; ++i) {
    const __int128 term = static_cast<__int128>(tensor.shape[i] - 1) * tensor.strides[i];
    if (term > kMaxBytes || term < -kMaxBytes) return std::nullopt;
    (term < 0 ? reach.low : reach.high) += term;
    if (reach.high > kMaxBytes || reach.low < -kMaxBytes) return std::nullopt;
  }
  return reach;
}

}  // namespace fairlead
