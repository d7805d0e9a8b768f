// The requester of UC and UD: turns work requests into packets that nobody acknowledges.
//
// A request completes once its last packet was handed to the port. One that cannot be sent fails and takes the send
// queue to SQE. The flow toward a peer (flow.h) bounds what is on its way. Never waits.
// Source: IBTA volume 1, 9.8.2 (UC requester), 9.8.3 (UD), 10.3.1.7 (SQE).
#pragma once

namespace fairlead::soft {
class Qp;
}

namespace fairlead::soft::unreliable {

/// At most `quota` packets. True if there is more to send at once.
bool run(Qp& qp, unsigned quota) noexcept;

/// All batches have left: what was sent completes.
void on_departed(Qp& qp) noexcept;

}  // namespace fairlead::soft::unreliable
