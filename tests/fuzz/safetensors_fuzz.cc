// Any bytes as a safetensors file: parsed to a header that keeps its promises, or refused with a reason.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "cli/models/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
  const auto header = fairlead::cli::parse_safetensors(file, size, "fuzz");
  if (!header) {
    if (header.error().message().empty()) std::abort();
    return 0;
  }
  // What was accepted lies inside the file, without hole or overlap, and survives being written and read again.
  std::uint64_t covered = 0;
  for (const auto& tensor : header->tensors) {
    if (tensor.offset != covered) std::abort();
    covered += tensor.bytes;
  }
  if (covered != header->data_bytes || header->data_begin + covered != size) std::abort();
  const std::string prefix = fairlead::cli::safetensors_prefix(header->tensors, header->metadata);
  const auto again =
      fairlead::cli::parse_safetensors(std::as_bytes(std::span(prefix)), prefix.size() + covered, "again");
  if (!again || again->tensors.size() != header->tensors.size()) std::abort();
  return 0;
}
