// What crosses the meeting's socket about arenas: memory of one end that the other may map to read it.
//
//   0: u8 kind | 1: u8 index | 2: 6 bytes of zeros | 8: u64 address | 16: u64 bytes
//
// "given" comes with the descriptor of a memfd that holds exactly these bytes, which are at `address` in the process
// that gives it; "taken back" says that they are no longer there. An arena is known by an index below kMostArenas.
// Packets are counted (Side::arenas), so that who is told an address knows whether it has heard of all arenas that were
// meant.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

namespace fairlead::shm {

/// That one end has given the other at a time: a bit each in Side::arenas.mapped.
inline constexpr std::size_t kMostArenas = 64;
inline constexpr std::uint64_t kMostArenaBytes = std::uint64_t{1} << 44;  // of one
/// That are mapped here at a time, of one path's and in this process: they leave it most of its 2^47 addresses.
inline constexpr std::uint64_t kMostMappedOfPath = std::uint64_t{1} << 42, kMostMapped = std::uint64_t{1} << 45;
/// So many mappings of the 65,530 that a process may have by default (vm.max_map_count).
inline constexpr std::uint64_t kMostArenasMapped = 8192;

enum class ArenaNews : std::uint8_t { kGiven = 2, kTakenBack = 3 };

struct ArenaPacket {
  ArenaNews kind = ArenaNews::kGiven;
  std::uint8_t index = 0;
  std::array<std::uint8_t, 6> zeros{};
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
};
static_assert(sizeof(ArenaPacket) == 24);

/// Nothing: they are no such packet.
[[nodiscard]] inline std::optional<ArenaPacket> parse_arena_packet(std::span<const std::byte> bytes) noexcept {
  ArenaPacket packet;
  if (bytes.size() != sizeof packet) return std::nullopt;
  std::memcpy(&packet, bytes.data(), sizeof packet);
  std::uint64_t end = 0;
  const bool legal = (packet.kind == ArenaNews::kGiven || packet.kind == ArenaNews::kTakenBack) &&
                     packet.index < kMostArenas && packet.zeros == std::array<std::uint8_t, 6>{} && packet.bytes > 0 &&
                     packet.bytes <= kMostArenaBytes && !__builtin_add_overflow(packet.address, packet.bytes, &end);
  return legal ? std::optional(packet) : std::nullopt;
}

}  // namespace fairlead::shm
