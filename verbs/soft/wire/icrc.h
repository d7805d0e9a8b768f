// The invariant CRC of RoCE: CRC-32 over the packet from the IP header (version 1: the GRH) on, with the fields that
// routers may change set to ones, behind eight bytes of ones, which stand for InfiniBand's local header (IBTA annexes
// A17.3.3, A16.4.2). Stored little-endian behind the payload.
//
// A socket shows neither the IP header nor its identification field, which the ICRC covers. The rest of the header is
// known (DF set, no options). (A port that owns the wire sees it all.) The id is guessed (0, or the segment number
// under UDP segmentation offload); where the guess fails, CRC's linearity tells whether any id explains the difference,
// and which. Then 2^-16 of corrupted frames pass, so they are counted apart. Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "verbs/soft/wire/gid.h"

namespace fairlead::soft {

/// What the headers before the BTH say. Version 2: both addresses are of one family; version 1 has no ports and no id.
struct UdpFrame {
  Gid source;
  Gid destination;
  std::uint16_t source_port = 0;
  std::uint16_t destination_port = 0;
  std::uint16_t ipv4_id = 0;          // ignored over IPv6
  std::size_t payload_bytes = 0;      // BTH to ICRC, both included
  std::uint16_t ipv4_flags = 0x4000;  // and fragment offset: DF; ignored over IPv6
  RoceVersion version = RoceVersion::kV2;
};

/// The CRC over the masked headers and the BTH, to be continued with crc32(rest, icrc_start(...)).
[[nodiscard]] std::uint32_t icrc_start(const UdpFrame& frame, const std::byte* bth) noexcept;

/// The ICRC of a whole packet; `packet` begins with the BTH (at least 12 bytes) and ends before the ICRC.
[[nodiscard]] std::uint32_t icrc(const UdpFrame& frame, std::span<const std::byte> packet) noexcept;

/// The same of a packet in two pieces; `head` begins with the BTH.
[[nodiscard]] std::uint32_t icrc(const UdpFrame& frame, std::span<const std::byte> head,
                                 std::span<const std::byte> rest) noexcept;

/// Given what `computed ^ received` is: the value that XORed into the id makes them equal, or nothing where no id does.
/// payload_bytes as in the frame.
[[nodiscard]] std::optional<std::uint16_t> explain_by_ipv4_id(std::uint32_t difference,
                                                              std::size_t payload_bytes) noexcept;

inline std::uint32_t load_icrc(const std::byte* from) noexcept {
  std::uint32_t value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}
inline void store_icrc(std::byte* to, std::uint32_t value) noexcept { std::memcpy(to, &value, sizeof(value)); }

}  // namespace fairlead::soft
