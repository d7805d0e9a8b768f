// Small messages that were posted in a row join a bundle (bundling.h) together: what the queue pair, its window and its
// memory allow is looked at once for all of them, and one guard is enough for their payload.
//
// It does what requester::run would do, one after the other, and leaves to that whatever is not plain. Threads: under
// the domain's lock.
#pragma once

namespace fairlead::soft {
class Qp;
}

namespace fairlead::soft::requester {

/// Starts up to `most` messages from the cursor on and puts them behind the last packet of the port's batch. How many:
/// the others are not started, and the next is the caller's, whatever kept it out.
[[nodiscard]] unsigned join_row(Qp& qp, unsigned most) noexcept;

}  // namespace fairlead::soft::requester
