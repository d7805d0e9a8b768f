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

#include "base/unique_fd.h"
#include "fairlead/status.h"
#include "fairlead/tensor.h"

namespace fairlead::cli {

inline constexpr std::string_view kMetadataName = "__metadata__";    // what a file says of itself; no tensor's
inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;  // bytes; the format's own limit

struct FileTensor {
  std::string name;
  std::string dtype = "U8";         // the format's word; one that is no DType is carried all the same
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

/// ok if a tensor of this dtype and shape may have so many bytes: where the dtype is a DType they must be what
/// tensor_bytes() says; of another (C64, F4, what is yet to be invented) only its writer knows. Errors: kDataLoss for a
/// dtype that is no word of 1 to 32 of A-Z a-z 0-9 _, and for the wrong number of bytes; those of tensor_bytes().
Status check_tensor_type(std::string_view dtype, std::span<const std::int64_t> shape, std::uint64_t bytes);

/// Checks the whole header against a file of `file_bytes` bytes that begins with `head`. `head` may end after the
/// header. `file` is for messages.
Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> head, std::uint64_t file_bytes,
                                            std::string_view file);

/// Reads the header of a file and nothing more. `path` is for messages. Errors: those of the system, kInvalidArgument
/// (no regular file), and those of parse_safetensors.
Result<SafetensorsHeader> read_safetensors(int fd, const std::string& path);
/// The same, and gives the open file.
Result<SafetensorsHeader> read_safetensors(const std::string& path, UniqueFd* file = nullptr);

/// The bytes that stand before the data: length and header, padded with spaces to a multiple of 8 as the format's own
/// writer pads, so that what it wrote comes back byte for byte. Offsets are assigned in the given order
/// (FileTensor::offset is ignored).
[[nodiscard]] std::string safetensors_prefix(std::span<const FileTensor> tensors,
                                             std::span<const std::pair<std::string, std::string>> metadata);

}  // namespace fairlead::cli
