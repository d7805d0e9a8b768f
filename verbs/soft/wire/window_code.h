// A window in five bits of a BTH, as devices of our kind announce it to each other: 0 for none, else two values to each
// doubling, from 8 KiB (1) to 256 MiB (31).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace fairlead::soft {

inline constexpr std::uint8_t kMostWindowCode = 31;
inline constexpr unsigned kLeastWindowBits = 12;  // of half the least window

/// What the code stands for; 0 for 0.
[[nodiscard]] constexpr std::size_t window_of(std::uint8_t code) noexcept {
  if (code == 0) return 0;
  const unsigned step = (code & kMostWindowCode) - 1U;
  return std::size_t{2 + (step & 1)} << (kLeastWindowBits + step / 2);
}

/// The greatest window that is announced and not above `bytes`, or the least.
[[nodiscard]] constexpr std::uint8_t window_code(std::size_t bytes) noexcept {
  if (bytes < window_of(1)) return 1;
  const auto bits = static_cast<unsigned>(std::bit_width(bytes)) - 2;  // below the upper two
  const std::size_t code = 1 + 2 * (bits - kLeastWindowBits) + (bytes >> bits & 1);
  return code < kMostWindowCode ? static_cast<std::uint8_t>(code) : kMostWindowCode;
}

static_assert(window_of(1) == 8 << 10 && window_of(10) == 192 << 10 && window_of(31) == 256 << 20);
static_assert(window_code(0) == 1 && window_code(192 << 10) == 10 && window_code((192 << 10) - 1) == 9);
static_assert(window_code(std::size_t{1} << 40) == kMostWindowCode);

}  // namespace fairlead::soft
