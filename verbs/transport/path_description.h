// What the two ends of a path tell each other before they connect (carried by the engine's control protocol).
//
// 40 bytes, big-endian:
//   0 'F' 'V' version=2 flags(bit 0: one-sided operations allowed)   4 gid[16]
//   20 qpn   24 psn   28 mtu (bytes)   30 message credits   32 message_bytes
//   36 max_rd_atomic   37 max_dest_rd_atomic   38 control credits   39 zero
// Parsing is strict and total: any bytes give a value or a reason.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fairlead/status.h"
#include "verbs/discovery/address.h"

namespace fairlead::verbs {

inline constexpr std::size_t kPathDescriptionBytes = 40;
inline constexpr std::uint32_t kMaxQpn = 0xffffff;
inline constexpr std::uint32_t kMaxPsn = 0xffffff;
inline constexpr std::uint32_t kMinMessageBytes = 64;
inline constexpr std::uint32_t kMaxMessageBytes = 1U << 30;
inline constexpr std::uint32_t kMinControlCredits = 4;  // fewer could deadlock, see verbs/transport/credits.h

struct PathDescription {
  Address gid;
  std::uint32_t qpn = 0;
  std::uint32_t psn = 0;                // of the first packet that this end sends
  std::uint32_t mtu = 0;                // largest path MTU of this end, bytes
  std::uint32_t message_credits = 0;    // receive buffers for messages
  std::uint32_t control_credits = 0;    // receive buffers for credit messages
  std::uint32_t message_bytes = 0;      // size of each buffer, header included
  std::uint8_t max_rd_atomic = 0;       // READs this end may have outstanding
  std::uint8_t max_dest_rd_atomic = 0;  // READs this end can answer at a time
  bool one_sided = true;

  [[nodiscard]] bool operator==(const PathDescription&) const noexcept = default;
};

/// `description` must hold values that parse accepts.
[[nodiscard]] std::string serialize(const PathDescription& description);

/// Errors: kVersionMismatch, kDataLoss (with the field, its value and its range).
Result<PathDescription> parse_path_description(std::string_view bytes);

}  // namespace fairlead::verbs
