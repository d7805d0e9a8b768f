// Sizes of blocks: powers of two and the quarters between them, so that at most a fifth is lost (more only below 256
// bytes and between 4 and 16 KiB, where alignment rules). From a page on a class is whole pages, below it whole cache
// lines. Blocks up to kMostClassBytes are kept by class; larger ones are runs of as many pages as they need.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>

#include "memreg/pages.h"

namespace fairlead::memreg {

inline constexpr std::size_t kSmallAlignment = 64;                      // a cache line
inline constexpr std::size_t kMostClassBytes = std::size_t{256} << 10;  // the largest class
inline constexpr std::size_t kSlabBytes = std::size_t{16} << 10;        // small blocks are carved so many at a time
inline constexpr std::size_t kClasses = (18 - 6) * 4 + 1;               // (log2, quarter), 64 bytes to 256 KiB

[[nodiscard]] constexpr std::size_t round_up(std::size_t value, std::size_t step) noexcept {
  return (value + step - 1) / step * step;
}

/// `bytes` rounded up to a class, also past the largest; what cannot be rounded stays.
[[nodiscard]] inline std::size_t class_size(std::size_t bytes) noexcept {
  const std::size_t alignment = bytes < page_size() ? kSmallAlignment : page_size();
  const std::size_t step = std::max(std::bit_floor(std::max(bytes, alignment)) / 4, alignment);  // a power of two
  return bytes > std::numeric_limits<std::size_t>::max() - step ? bytes : (bytes + step - 1) & ~(step - 1);
}

/// Of a class of at most kMostClassBytes: below kClasses.
[[nodiscard]] constexpr std::size_t class_index(std::size_t class_bytes) noexcept {
  const auto log2 = static_cast<std::size_t>(std::bit_width(class_bytes)) - 1;
  return (log2 - 6) * 4 + ((class_bytes >> (log2 - 2)) & 3);
}

/// The class of that index.
[[nodiscard]] constexpr std::size_t class_bytes_of(std::size_t index) noexcept {
  const std::size_t log2 = index / 4 + 6;
  return (std::size_t{4} + index % 4) << (log2 - 2);
}

static_assert(class_index(kMostClassBytes) == kClasses - 1);
static_assert(class_bytes_of(class_index(320)) == 320);

}  // namespace fairlead::memreg
