// The 40 bytes before a received datagram: who sent it to whom.
//
// Source: IBTA volume 1, 8.3 (GRH), annex A17.4.5.3: over IPv4 the IP header takes the last 20 bytes.
// Of RoCE v1 it is the GRH as it was received.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <optional>

#include "verbs/soft/port/packet_port.h"
#include "verbs/soft/wire/ip.h"

namespace fairlead::soft {

/// What stands before the payload of a packet that came to `destination`. Both addresses are of one family. What a
/// socket does not show is filled in: id as inferred, hop limit 64, flow label 0.
[[nodiscard]] std::array<std::byte, kGrhBytes> make_grh(const RxPacket& raw, const Gid& destination) noexcept;

struct GrhEnds {
  Gid source;
  Gid destination;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;
  std::uint32_t flow_label = 0;
  RoceVersion version = RoceVersion::kV2;
};

/// Nothing if it is neither a GRH (or IPv6 header) nor an IPv4 header in its place with the right checksum.
[[nodiscard]] std::optional<GrhEnds> read_grh(const ibv_grh& grh) noexcept;

}  // namespace fairlead::soft
