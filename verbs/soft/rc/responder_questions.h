// READs and atomics as the responder remembers them: a new one finds room, a repetition what it repeats.
//
// Only the last max_dest_rd_atomic are remembered, as a requester may not have asked more without an answer. What
// repeats none of them, or a part of one, is not answered: the key of an old READ must not be one to try others with.
// Threads: under the domain's lock. Source: IBTA volume 1, 9.7.4.1.6 (limit), 9.7.5.1.4 (duplicates).
#pragma once

#include "verbs/soft/wire/packet.h"

namespace fairlead::soft {
class Qp;
struct Question;
struct ReceiveState;

namespace responder {

/// Forgets the oldest question if there must be room for another. False when the requester cannot have its answer yet,
/// so that it asks more than was agreed on.
[[nodiscard]] bool make_room(ReceiveState& receive) noexcept;
/// Remembers what the expected packet asks, and owes the answer; there is room.
void ask(Qp& qp, const Packet& packet, Question question) noexcept;
/// A question seen before: owes the answer again, or drops it.
void repeat(Qp& qp, const Packet& packet) noexcept;

/// Of a READ whose memory is gone.
void refuse_repetition(Qp& qp, const Packet& packet) noexcept;

/// Of the replies that are owed; there is one.
void drop_oldest_reply(ReceiveState& receive) noexcept;

/// Whether the queue pair may be asked for this range.
[[nodiscard]] bool may_read(const Qp& qp, const Reth& reth) noexcept;
/// Packets of the answer to a READ.
[[nodiscard]] std::uint32_t response_packets(const Qp& qp, const Reth& reth) noexcept;

}  // namespace responder
}  // namespace fairlead::soft
