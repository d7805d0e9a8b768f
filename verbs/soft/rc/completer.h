// The completer: what acknowledgements and READ responses do to the send queue.
//
// WQEs complete in order. A gap (sequence NAK, a missing READ response) sends the requester back to the oldest packet
// that is not acknowledged (retransmission.h). Source: IBTA volume 1, 9.7.5 (responses), 9.9 (errors).
#pragma once

#include <infiniband/verbs.h>

#include "base/clock.h"
#include "verbs/soft/wire/packet.h"

namespace fairlead::soft {
class Qp;
}

namespace fairlead::soft::completer {

void on_response(Qp& qp, const Packet& packet) noexcept;

/// Asks again for answers that are missing before others that came, where it is time to.
void look_for_missing(Qp& qp) noexcept;

/// Local operations that were executed and have nothing before them complete.
void complete_executed(Qp& qp) noexcept;

/// The oldest WQE fails with `status`, and with it the queue pair; the others are flushed.
void fail(Qp& qp, ibv_wc_status status, std::uint32_t vendor_error = 0) noexcept;

/// Completes the oldest WQE, if it is signaled or failed.
void complete_head(Qp& qp, ibv_wc_status status, std::uint32_t vendor_error = 0) noexcept;

/// How long a responder that is not ready asks to wait (IBTA table 45).
[[nodiscard]] Nanos rnr_delay(std::uint8_t timer) noexcept;

}  // namespace fairlead::soft::completer
