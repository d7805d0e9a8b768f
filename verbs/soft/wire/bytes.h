// Big-endian loads and stores of unaligned bytes: the byte order of every InfiniBand header.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace fairlead::soft {

static_assert(std::endian::native == std::endian::little, "the codec swaps bytes unconditionally");

inline std::uint16_t load16(const std::byte* from) noexcept {
  std::uint16_t value;
  std::memcpy(&value, from, sizeof(value));
  return __builtin_bswap16(value);
}
inline std::uint32_t load32(const std::byte* from) noexcept {
  std::uint32_t value;
  std::memcpy(&value, from, sizeof(value));
  return __builtin_bswap32(value);
}
inline std::uint64_t load64(const std::byte* from) noexcept {
  std::uint64_t value;
  std::memcpy(&value, from, sizeof(value));
  return __builtin_bswap64(value);
}
inline void store16(std::byte* to, std::uint16_t value) noexcept {
  value = __builtin_bswap16(value);
  std::memcpy(to, &value, sizeof(value));
}
inline void store32(std::byte* to, std::uint32_t value) noexcept {
  value = __builtin_bswap32(value);
  std::memcpy(to, &value, sizeof(value));
}
inline void store64(std::byte* to, std::uint64_t value) noexcept {
  value = __builtin_bswap64(value);
  std::memcpy(to, &value, sizeof(value));
}

}  // namespace fairlead::soft
