// The responder: checks and executes what the peer asks, in order, and answers.
//
// Answers are coalesced: one acknowledgement per burst, after all READ responses that precede it.
// Source: IBTA volume 1, 9.7.4 (request validation), 9.7.5.1 (response generation), 9.9.3 (responder errors).
#pragma once

#include "verbs/soft/wire/packet.h"

namespace fairlead::soft {
class Qp;
}

namespace fairlead::soft::responder {

void on_request(Qp& qp, const Packet& packet) noexcept;

/// An acknowledgement waits in QpContext::hold, and nothing must leave before it.
[[nodiscard]] bool holds_ack(const Qp& qp) noexcept;
/// It leaves now, unless READs before it are to be answered: then it leaves behind their answers.
void send_held_ack(Qp& qp) noexcept;
/// It is no longer owed: the requester lets a message carry it.
CarriedAck take_held_ack(Qp& qp) noexcept;

/// A message of our own begins: what the responder watches, to hold acknowledgements where messages go to and fro.
void on_own_message(Qp& qp) noexcept;

/// There is something that run() would send.
[[nodiscard]] bool has_answers(const Qp& qp) noexcept;

/// Sends at most `quota` packets of answers. True if there is more.
bool run(Qp& qp, unsigned quota) noexcept;

/// Tells the requester, who is of our kind, what is missing before packets that came early, where it is time to.
void report_missing(Qp& qp) noexcept;

}  // namespace fairlead::soft::responder
