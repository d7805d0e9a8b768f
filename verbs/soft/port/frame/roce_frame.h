// RoCE packets in Ethernet frames: the headers before the BTH, of version 2 (IP and UDP) and version 1 (a GRH).
//
// Threads: pure functions. Source: IBTA annexes A17 and A16.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "verbs/soft/port/packet_port.h"
#include "verbs/soft/wire/ethernet.h"

namespace fairlead::soft {

/// Who a port is on its wire.
struct StationNames {
  Mac mac;
  Gid address;
  Gid link_local;  // for version 1 only
};

/// Whether the frame is for us and holds a RoCE packet, which is then in `packet`, but for its ICRC unchecked.
[[nodiscard]] bool parse_roce_frame(std::span<const std::byte> frame, const StationNames& own,
                                    RxPacket& packet) noexcept;

/// Writes what stands before the BTH of a packet of so many bytes; returns the BTH's place. Null where that is more
/// than `mtu` bytes behind the Ethernet header. The destination's Ethernet address is left out.
[[nodiscard]] std::byte* put_roce_headers(const Route& route, std::size_t packet_bytes, const Mac& own,
                                          std::uint32_t mtu, std::byte* room) noexcept;

/// An IPv4 address of the link-local range (169.254.0.0/16, RFC 3927) that depends on the station alone.
[[nodiscard]] Gid automatic_address(const Mac& mac) noexcept;

}  // namespace fairlead::soft
