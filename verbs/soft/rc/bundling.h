// The sending of bundles (wire/bundle.h): a small message joins the packet of the one before it, if that has not left.
//
// Nothing waits for company: what is posted together leaves together. What is sent again goes by itself, and the first
// bundle of a queue pair shows whether the peer takes any: until it is acknowledged there is no second, and if it has
// to be sent again there will be none. Threads: under the domain's lock.
#pragma once

#include "verbs/soft/qp/qp.h"
#include "verbs/soft/rc/message_packets.h"

namespace fairlead::soft::requester {

/// Of its kind, and short enough to be copied into a packet.
[[nodiscard]] inline bool is_small(const SendWqe& wqe) noexcept {
  return (wqe.is_write() || wqe.is_send()) && wqe.opcode != IBV_WR_SEND_WITH_INV && wqe.length <= TxBatch::kCopyBytes;
}
/// Whether it may be in a bundle, and take part in beginning one.
[[nodiscard]] bool may_join(const Qp& qp, const SendWqe& wqe, const MessagePacket& packet) noexcept;

/// The last packet of the port's batch, if the message with that PSN may be put behind its messages, of which there is
/// room for one more by their number; else null.
[[nodiscard]] TxPacket* open_bundle(Qp& qp, Psn next) noexcept;
/// Where a bundled message at `at` has its payload.
[[nodiscard]] std::byte* bundled_payload(const OpcodeInfo& info, std::byte* at) noexcept;
/// Writes all of it but its payload.
void put_bundled(const SendWqe& wqe, const OpcodeInfo& info, std::byte* at) noexcept;

enum class Joining { kJoined, kNoBundle, kGone };  // gone: its payload, as add_payload has it
/// Puts it behind the last packet of the port's batch, if that is of the queue pair's messages before it.
[[nodiscard]] Joining join(Qp& qp, const SendWqe& wqe, const MessagePacket& packet, const OpcodeInfo& info) noexcept;

/// More of what was sent is acknowledged.
void on_acknowledged(SendState& state) noexcept;
/// A packet that was sent before is sent again.
void on_repeat(SendState& state, Psn psn) noexcept;

}  // namespace fairlead::soft::requester
