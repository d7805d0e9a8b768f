// Selective repetition, the requester's part, toward a responder of our kind: of packets that it reports missing, those
// are sent again and no others; of answers that are missing, those are asked for. What this does not reach goes the way
// of retransmission.h.
//
// Threads: under the domain's lock. docs/softroce.md has the packet that reports.
#pragma once

namespace fairlead::soft {

class Qp;
struct PsnRange;

namespace requester {

/// The peer lacks these packets. A range beyond what was sent, or that will be sent anyway, is cut.
void on_missing(Qp& qp, PsnRange range) noexcept;
/// We lack its answers to those, as far as they are READs and atomics.
void on_unanswered(Qp& qp, PsnRange range) noexcept;

/// Sends what is to be repeated, at most `quota` packets, of which it takes its part. False if more is to be.
bool send_repeats(Qp& qp, unsigned& quota) noexcept;

}  // namespace requester
}  // namespace fairlead::soft
