// The requester: turns work requests into request packets.
//
// Sends while the send queue, the peer's window, max_rd_atomic, fences and RNR waits allow. Never waits.
// Source: IBTA volume 1, 9.7.2 (request packets), 9.7.3.2 (PSN window), 10.6.7.2 (local protection).
#pragma once

namespace fairlead::soft {
class Qp;
}

namespace fairlead::soft::requester {

/// At most `quota` packets. True if there is more to send at once.
bool run(Qp& qp, unsigned quota) noexcept;

}  // namespace fairlead::soft::requester
