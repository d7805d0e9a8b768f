// When what was sent is sent again: round trips, the timer, and going back to the oldest packet that is not
// acknowledged.
//
// A timeout probes early and with little; only those that the ack timeout counts are retries, and end the queue pair.
// Threads: under the domain's lock. Source: IBTA volume 1, 9.7.6 (timers and retries); RFC 6298 (round trips).
#pragma once

#include "verbs/soft/wire/psn.h"

namespace fairlead::soft {
class Qp;
}

namespace fairlead::soft::retransmission {

/// Starts the timer after a first packet was sent.
void on_sent(Qp& qp) noexcept;

/// The packet is about to be sent, and asks to be answered: how long that takes is measured, one at a time. `reads`:
/// the answer may be long.
void time_round_trip(Qp& qp, Psn psn, bool reads) noexcept;

/// The deadline has passed.
void on_timer(Qp& qp) noexcept;

/// The peer has acknowledged or answered what it had not before.
void progressed(Qp& qp) noexcept;

/// An answer came; `in_vain`: it shows that what was sent again, if anything was, had arrived. Before progressed().
void heard(Qp& qp, bool in_vain) noexcept;

/// The peer lives, and lacks something that it is to be sent once more.
void reported(Qp& qp) noexcept;

/// Back to the oldest packet that is not acknowledged.
/// What was sent while it probed is charged from its first answer on.
void charge_probes(Qp& qp) noexcept;
void rewind(Qp& qp) noexcept;

/// Whether what was reported lost may be sent again at once; else the last report is heeded in time.
[[nodiscard]] bool may_repair(Qp& qp) noexcept;

}  // namespace fairlead::soft::retransmission
