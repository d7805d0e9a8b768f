// Test data that both ends can make: bytes that depend on a seed, a slot and their place, so that a byte that is lost,
// doubled, moved or left over from before differs. Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace fairlead::bench {

void fill_pattern(std::span<std::byte> bytes, std::uint64_t seed, std::uint64_t slot) noexcept;
/// CRC-32 of what fill_pattern would write, without memory for it.
[[nodiscard]] std::uint32_t pattern_crc(std::uint64_t size, std::uint64_t seed, std::uint64_t slot) noexcept;
/// What a slot holds instead, whose CRC-32 is this: for people.
[[nodiscard]] std::string_view what_else(std::uint32_t crc, std::uint64_t size, std::uint64_t seed, std::uint64_t slot);

}  // namespace fairlead::bench
