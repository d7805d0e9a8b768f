// The 40 bytes that stand before a received datagram in its receiver's memory.
//
// Source: IBTA volume 1, 8.3 (GRH), annex A17.4.5.3: over IPv4 the IP header takes the last 20 bytes.
#pragma once

#include <array>
#include <cstddef>

#include "verbs/soft/port/packet_port.h"
#include "verbs/soft/wire/ip.h"

namespace fairlead::soft {

/// What stands before the payload of a packet that came to `destination`. Both addresses are of one family. What a
/// socket does not show is filled in: id as inferred, hop limit 64, flow label 0.
[[nodiscard]] std::array<std::byte, kGrhBytes> make_grh(const RxPacket& raw, const Gid& destination) noexcept;

}  // namespace fairlead::soft
