// The packets of requests, as RC makes them the first time or again; what of it UC and UD do alike.
//
// Threads: under the domain's lock. Source: IBTA volume 1, 9.7.2 (request packets), 10.6.7.2 (local protection).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "verbs/soft/wire/opcode.h"

namespace fairlead::soft {
class Qp;
class TxBatch;
struct SendWqe;
}  // namespace fairlead::soft

namespace fairlead::soft::requester {

/// The opcode of RC for a packet of a SEND or WRITE.
[[nodiscard]] Opcode message_opcode(const SendWqe& wqe, bool first, bool last) noexcept;
/// Adds bytes of the WQE at `index`. False when a segment's key does not grant them.
[[nodiscard]] bool add_payload(Qp& qp, TxBatch& batch, std::uint32_t index, std::uint64_t offset,
                               std::size_t length) noexcept;
/// The same, of a whole message of one packet, into memory of ours.
[[nodiscard]] bool copy_payload(Qp& qp, std::uint32_t index, std::byte* to) noexcept;
/// What follows the BTH of its first packet.
void put_headers(const SendWqe& wqe, const OpcodeInfo& info, std::byte* to) noexcept;
/// What a packet with so much payload takes of a window; `least`: the port's least_charge().
[[nodiscard]] constexpr std::uint32_t packet_charge(std::uint32_t payload, std::uint32_t least) noexcept {
  constexpr std::uint32_t kHeaders = 64;
  return std::max(least, payload + kHeaders);
}

struct MessagePacket {
  std::uint32_t index = 0;   // of the WQE
  std::uint32_t number = 0;  // of its packets
  bool ack_request = false;
  bool carries_ack = false;                // the one that the responder holds
  std::span<const std::byte> refers = {};  // not empty: it refers to this payload, that of as many packets as it takes
};

/// Of RC: puts it into the batch. False, and nothing is in the batch: as add_payload.
[[nodiscard]] bool put_packet(Qp& qp, const MessagePacket& packet) noexcept;

/// What packets [from, end) of the answer to a READ are of its bytes.
struct ReadPart {
  std::uint64_t offset = 0;
  std::uint32_t length = 0;
};
[[nodiscard]] ReadPart read_part(const Qp& qp, const SendWqe& wqe, std::uint32_t from, std::uint32_t end) noexcept;
/// Asks for those packets.
void put_read(Qp& qp, const SendWqe& wqe, std::uint32_t from, std::uint32_t end) noexcept;
void put_atomic(Qp& qp, const SendWqe& wqe) noexcept;

}  // namespace fairlead::soft::requester
