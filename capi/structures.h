// Structures with a struct_size, between programs and a library that may be of different releases: each side sees the
// members that both know.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "capi/outcome.h"
#include "fairlead/tensor.h"
#include "fairlead/version.h"

namespace fairlead::capi {

inline constexpr std::size_t kLargestStructure = 1 << 16;

/// Reads what the caller gave over the defaults in `known`. Errors: kInvalidArgument, a size that is none;
/// kVersionMismatch, a member is set that this library does not know.
template <typename Structure>
Status take(const Structure& given, Structure& known, const char* type) {
  static_assert(std::is_trivially_copyable_v<Structure> && offsetof(Structure, struct_size) == 0);
  const std::size_t size = given.struct_size;
  if (size < sizeof size || size > kLargestStructure) {
    return {Code::kInvalidArgument, std::string(type) + ".struct_size is " + std::to_string(size) +
                                        ": set it to sizeof(" + type + "), as FAIRLEAD_INIT does"};
  }
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&given);
  if (size > sizeof known &&
      std::any_of(bytes + sizeof known, bytes + size, [](std::uint8_t each) { return each != 0; })) {
    return {Code::kVersionMismatch, std::string(type) + " has a member set that this library, " +
                                        std::string(version()) +
                                        ", does not know: use the release that the program was built for"};
  }
  std::memcpy(&known, bytes, std::min(size, sizeof known));
  return {};
}

/// Fills in as much as the caller has room for, and 0 beyond what this library knows. Errors: a size that is none.
template <typename Structure>
Status give(const Structure& full, Structure* out, const char* type) {
  static_assert(std::is_trivially_copyable_v<Structure> && offsetof(Structure, struct_size) == 0);
  if (out == nullptr) return missing(type);
  const std::size_t size = out->struct_size;
  if (size < sizeof size || size > kLargestStructure) {
    return {Code::kInvalidArgument, std::string(type) + ".struct_size is " + std::to_string(size) +
                                        ": set it to sizeof(" + type + "), as FAIRLEAD_INIT does"};
  }
  auto* const bytes = reinterpret_cast<std::uint8_t*>(out);
  std::memcpy(bytes, &full, std::min(size, sizeof full));
  if (size > sizeof full) std::memset(bytes + sizeof full, 0, size - sizeof full);
  out->struct_size = size;
  return {};
}

/// C's tensor as the library's, and back. Errors: what take() finds, a rank above 8.
Status tensor_of(const fairlead_tensor* tensor, TensorSpec& spec);
Status give_tensor(const TensorSpec& spec, fairlead_tensor* tensor);

}  // namespace fairlead::capi
