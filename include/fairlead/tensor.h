// Tensors: how bytes in a region are to be read. Strides and offset as in DLPack; <fairlead/dlpack.h> converts.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "fairlead/export.h"
#include "fairlead/status.h"

namespace fairlead::inline v0 {

/// Element types, named as safetensors names them. Values are part of the wire protocol.
enum class DType : std::uint8_t {
  kBool = 1,
  kU8,
  kI8,
  kF8E4M3,
  kF8E5M2,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kI64,
  kU64,
  kF64,
};

/// Bytes per element; 0 for a value that is not a DType.
[[nodiscard]] FAIRLEAD_EXPORT std::uint32_t element_size(DType dtype) noexcept;
/// "F32", "BF16", ...; "?" for a value that is not a DType.
[[nodiscard]] FAIRLEAD_EXPORT std::string_view to_string(DType dtype) noexcept;
[[nodiscard]] FAIRLEAD_EXPORT std::optional<DType> dtype_from_string(std::string_view name) noexcept;

inline constexpr std::size_t kMaxTensorRank = 8;

/// dtype, shape[rank], strides[rank] in elements (may be any sign for a local view, never overlapping for a target),
/// and the offset of element 0 from the region's first byte, in bytes. Rank 0 is a scalar.
struct FAIRLEAD_EXPORT TensorSpec {
  DType dtype = DType::kU8;
  std::uint8_t rank = 0;
  std::array<std::int64_t, kMaxTensorRank> shape{};
  std::array<std::int64_t, kMaxTensorRank> strides{};
  std::uint64_t offset = 0;

  /// Row-major contiguous. Error: rank > 8, a negative dimension, a size beyond 2^63 - 1 bytes.
  static Result<TensorSpec> contiguous(DType dtype, std::span<const std::int64_t> shape, std::uint64_t offset = 0);

  /// Product of the shape (1 for a scalar, 0 if any dimension is 0).
  [[nodiscard]] std::uint64_t element_count() const noexcept;
  [[nodiscard]] std::uint64_t byte_count() const noexcept;
  [[nodiscard]] bool is_contiguous() const noexcept;
  /// ok if every element lies inside a region of `region_bytes` bytes and nothing overflows; else says which limit.
  [[nodiscard]] Status check(std::uint64_t region_bytes) const;
  /// "F32[64,3,7,7]"
  [[nodiscard]] std::string to_string() const;
};

}  // namespace fairlead::inline v0
