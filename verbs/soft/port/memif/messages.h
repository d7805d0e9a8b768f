// The control messages of memif: packets of 128 bytes over a Unix socket, some with a descriptor.
//
// Values are in the host's byte order, text is what stands before the first zero. Threads: pure functions.
// Source: the memif protocol, version 2.0.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "verbs/soft/port/memif/layout.h"

namespace fairlead::soft::memif {

inline constexpr std::size_t kMessageBytes = 128;
inline constexpr std::size_t kMostNameBytes = 31;
inline constexpr std::size_t kMostSecretBytes = 24;
inline constexpr std::size_t kMostReasonBytes = 95;

struct Ack {};
/// The master's, first of all.
struct Hello {
  std::string name = {};
  std::uint16_t least_version = kVersion;
  std::uint16_t most_version = kVersion;
  std::uint16_t last_region = 0;  // the highest number that it takes
  std::uint16_t last_to_slave = 0;
  std::uint16_t last_to_master = 0;
  std::uint8_t most_log2_slots = kMostLog2Slots;
};
struct Init {
  std::uint16_t version = kVersion;
  std::uint32_t interface = 0;
  std::uint8_t mode = 0;  // 0: Ethernet
  std::string secret = {};
  std::string name = {};
};
/// With the descriptor of the memory.
struct AddRegion {
  std::uint16_t index = 0;
  std::uint64_t bytes = 0;
};
/// With the eventfd that wakes the ring's receiver.
struct AddRing {
  Direction direction = Direction::kToMaster;
  std::uint16_t index = 0;
  std::uint16_t region = 0;
  std::uint32_t offset = 0;
  std::uint8_t log2_slots = 0;
  std::uint16_t private_bytes = 0;  // before each frame
};
struct Connect {
  std::string interface_name = {};
};
struct Connected {
  std::string interface_name = {};
};
struct Disconnect {
  std::uint32_t code = 0;
  std::string reason = {};
};

using Message = std::variant<Ack, Hello, Init, AddRegion, AddRing, Connect, Connected, Disconnect>;

[[nodiscard]] std::array<std::byte, kMessageBytes> encode(const Message& message) noexcept;
/// Nothing: not of the one size that messages have, or of no known type.
[[nodiscard]] std::optional<Message> decode(std::span<const std::byte> bytes);

}  // namespace fairlead::soft::memif
