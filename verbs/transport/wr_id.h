// What a work request id says, so that a completion finds its path without a table keyed by queue pair number.
//
// bits 63..48 slot of the path, 47..33 generation of the slot, 32 receive, 31..0 sequence (send) or buffer (receive).
// The generation makes completions of a destroyed queue pair harmless.
#pragma once

#include <cstdint>

namespace fairlead::verbs {

inline constexpr std::uint32_t kMaxSlots = 1U << 16;
inline constexpr std::uint64_t kReceiveBit = std::uint64_t{1} << 32;

[[nodiscard]] constexpr std::uint64_t make_wr_id(std::uint32_t slot, std::uint32_t generation) noexcept {
  return static_cast<std::uint64_t>(slot) << 48 | static_cast<std::uint64_t>(generation & 0x7fff) << 33;
}
[[nodiscard]] constexpr std::uint32_t slot_of(std::uint64_t wr_id) noexcept {
  return static_cast<std::uint32_t>(wr_id >> 48);
}
[[nodiscard]] constexpr bool is_receive(std::uint64_t wr_id) noexcept { return (wr_id & kReceiveBit) != 0; }
[[nodiscard]] constexpr std::uint32_t index_of(std::uint64_t wr_id) noexcept {
  return static_cast<std::uint32_t>(wr_id);
}
/// Slot and generation alone.
[[nodiscard]] constexpr std::uint64_t path_of(std::uint64_t wr_id) noexcept { return wr_id >> 33; }

}  // namespace fairlead::verbs
