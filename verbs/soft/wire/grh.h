// The 40 bytes before a received datagram, read: who sent it to whom. port/received_grh.h makes them.
//
// Source: IBTA volume 1, 8.3 (GRH), annex A17.4.5.3: over IPv4 the IP header takes the last 20 bytes.
// Of RoCE v1 it is the GRH as it was received.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>

#include "verbs/soft/wire/ip.h"

namespace fairlead::soft {

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
