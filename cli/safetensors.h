// The safetensors file format: 8 bytes of header length (little-endian), a JSON header, the tensors' bytes.
//
// Header: {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [BEGIN, END]}, ..., "__metadata__": {"K": "V"}}.
// Offsets count from the first byte after the header. The tensors cover those bytes in order, without hole or overlap.
// Errors: kDataLoss, naming the file, the tensor, the value and the limit. Nothing is read outside the given bytes.
// Source: the format's description at https://github.com/huggingface/safetensors (README, "Format").
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fairlead/status.h"
#include "fairlead/tensor.h"

namespace fairlead::cli {

inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;  // bytes; the format's own limit

struct FileTensor {
  std::string name;
  DType dtype = DType::kU8;
  std::vector<std::int64_t> shape;  // may be empty (a scalar) and may hold 0
  std::uint64_t offset = 0;         // of the first byte, from the start of the data
  std::uint64_t bytes = 0;
};

/// What a header says. Tensors are in the order of their bytes.
struct SafetensorsHeader {
  std::vector<FileTensor> tensors;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::uint64_t data_begin = 0;  // offset of the data in the file
  std::uint64_t data_bytes = 0;
};

/// shape's product times the element size. Error: kOutOfRange for a negative dimension or a result beyond 2^63 - 1.
Result<std::uint64_t> tensor_bytes(DType dtype, std::span<const std::int64_t> shape);

/// Checks the whole header against a file of `file_bytes` bytes that begins with `head`. `head` may end after the
/// header. `file` is for messages.
Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> head, std::uint64_t file_bytes,
                                            std::string_view file);

/// Reads the header of a file and nothing more. Errors: kNotFound, kPermissionDenied, and those of parse_safetensors.
Result<SafetensorsHeader> read_safetensors(const std::string& path);

/// The bytes that stand before the data: length and header, padded with spaces to a multiple of 64 so that the data
/// is aligned. Offsets are assigned in the given order (FileTensor::offset is ignored).
[[nodiscard]] std::string safetensors_prefix(std::span<const FileTensor> tensors,
                                             std::span<const std::pair<std::string, std::string>> metadata);

}  // namespace fairlead::cli
