// Arithmetic that requester and completer share: how a long READ is asked for in parts.
#pragma once

#include <algorithm>
#include <cstdint>

namespace fairlead::soft {

/// Bytes of one READ request; a multiple of every path MTU.
inline constexpr std::uint32_t kReadPartBytes = 128 << 10;

/// Messages to and fro, one each, after which the next is expected to be answered as well.
inline constexpr std::uint8_t kMostTurns = 4;

/// Packets that it takes to carry so many bytes.
[[nodiscard]] constexpr std::uint32_t packets_of(std::size_t bytes, std::uint32_t mtu) noexcept {
  return bytes == 0 ? 1 : static_cast<std::uint32_t>((bytes - 1) / mtu) + 1;
}

/// The packet after the last one of the part that `packet` belongs to, in a READ of `packets` response packets.
[[nodiscard]] constexpr std::uint32_t read_part_end(std::uint32_t mtu, std::uint32_t packets,
                                                    std::uint32_t packet) noexcept {
  const std::uint32_t part = kReadPartBytes / mtu;
  return std::min(packets, (packet / part + 1) * part);
}

}  // namespace fairlead::soft
