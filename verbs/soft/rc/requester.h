// The requester: turns work requests into request packets.
//
// Sends while the send queue, the peer's window, max_rd_atomic, fences and RNR waits allow. Never waits.
// Source: IBTA volume 1, 9.7.2 (request packets), 9.7.3.2 (PSN window), 10.6.7.2 (local protection).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "verbs/soft/wire/opcode.h"

namespace fairlead::soft {
class Qp;
class TxBatch;
struct SendWqe;
}  // namespace fairlead::soft

namespace fairlead::soft::requester {

/// At most `quota` packets. True if there is more to send at once.
bool run(Qp& qp, unsigned quota) noexcept;

// What UC and UD send in the same way.

/// The opcode of RC for a packet of a SEND or WRITE.
[[nodiscard]] Opcode message_opcode(const SendWqe& wqe, bool first, bool last) noexcept;
/// Adds bytes of the WQE at the cursor. False when a segment's key does not grant them.
[[nodiscard]] bool add_payload(Qp& qp, TxBatch& batch, const SendWqe& wqe, std::uint64_t offset,
                               std::size_t length) noexcept;
/// What a packet with so much payload takes of a window; `least`: the port's least_charge().
[[nodiscard]] constexpr std::uint32_t packet_charge(std::uint32_t payload, std::uint32_t least) noexcept {
  constexpr std::uint32_t kHeaders = 64;
  return std::max(least, payload + kHeaders);
}

}  // namespace fairlead::soft::requester
