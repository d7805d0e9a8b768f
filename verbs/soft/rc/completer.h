// The completer: what acknowledgements, READ responses and time do to the send queue.
//
// WQEs complete in order. A gap (sequence NAK, a missing READ response, a timeout) sends the requester back to the
// oldest packet that is not acknowledged.
// Source: IBTA volume 1, 9.7.5 (responses), 9.7.6 (timers and retries), 9.9 (errors).
#pragma once

#include <infiniband/verbs.h>

#include "base/clock.h"
#include "verbs/soft/wire/packet.h"

namespace fairlead::soft {
class Qp;
}

namespace fairlead::soft::completer {

void on_response(Qp& qp, const Packet& packet) noexcept;

/// The deadline has passed.
void on_timer(Qp& qp) noexcept;

/// Starts the timer after a first packet was sent.
void on_sent(Qp& qp) noexcept;

/// Local operations that were executed and have nothing before them complete.
void complete_executed(Qp& qp) noexcept;

/// The oldest WQE fails with `status`, and with it the queue pair; the others are flushed.
void fail(Qp& qp, ibv_wc_status status, std::uint32_t vendor_error = 0) noexcept;

/// Completes the oldest WQE, if it is signaled or failed.
void complete_head(Qp& qp, ibv_wc_status status, std::uint32_t vendor_error = 0) noexcept;

/// How long a responder that is not ready asks to wait (IBTA table 45).
[[nodiscard]] Nanos rnr_delay(std::uint8_t timer) noexcept;

}  // namespace fairlead::soft::completer
