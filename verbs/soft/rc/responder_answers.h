// The answers a responder owes its requester: acknowledgements, refusals, responses to READs and atomics.
//
// At most one acknowledgement is owed at a time; a later one replaces it, as it says all that the earlier one did.
// Used by the responder's files alone; responder::run() sends what is owed. Source: IBTA volume 1, 9.7.5.
#pragma once

#include <cstdint>

#include "verbs/soft/wire/headers.h"

namespace fairlead::soft {
class Qp;
struct Reply;
}  // namespace fairlead::soft

namespace fairlead::soft::responder {

[[nodiscard]] inline bool is_nak(std::uint8_t syndrome) noexcept { return (syndrome & 0xe0) != 0; }

void owe_answer(Qp& qp, Psn psn, std::uint8_t syndrome) noexcept;
void owe_ack(Qp& qp, Psn psn) noexcept;
/// The same, but it need not leave before a message of our own does.
void hold_ack(Qp& qp, Psn psn) noexcept;

/// Sends at once that so many packets, from `psn` on, are not there; `next`: they are what is expected next.
void send_missing(Qp& qp, Psn psn, std::uint32_t packets, bool next) noexcept;

/// Queues a READ or an atomic to be answered; there is room.
void push_reply(Qp& qp, const Reply& reply) noexcept;
/// Sends at once that the packet at `psn`, a repetition, cannot be answered; nothing else comes of it.
void send_refusal(Qp& qp, Psn psn, Syndrome syndrome) noexcept;
/// A refusal of the packet at `psn` that ends the queue pair: sent after the answers before it, then ERR.
void die(Qp& qp, Psn psn, Syndrome syndrome) noexcept;

}  // namespace fairlead::soft::responder
