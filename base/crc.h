// CRC-32 of IEEE 802.3 (reflected, polynomial 0x04C11DB7; what zip, Ethernet and RoCE's ICRC use), by the fastest code
// that this CPU runs. Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fairlead {

/// The CRC of the bytes. With the CRC of what came before as `before`, the CRC of both together:
/// crc32(b, crc32(a)) == crc32(ab). crc32 of nothing is 0.
[[nodiscard]] std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before = 0) noexcept;

}  // namespace fairlead
