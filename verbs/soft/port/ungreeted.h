// Connections of memif clients that the server has not greeted when they are to end.
//
// The server of DPDK's driver (22.11) greets whoever connects. Where that one has hung up by then, it closes the
// connection without telling DPDK's interrupt thread, which finds a descriptor that is closed and ends the process
// (rte_panic): a server that was stopped, or had no core, for as long as a client tried. So such a connection stays
// open here until its server has said something or gone, or for a minute; of more than 16 the last. Threads: any.
#pragma once

#include "base/private_fd.h"

namespace fairlead::soft {

/// Nothing has come by it that was not taken, and its other end has not hung up. One that is set up is silent, too.
[[nodiscard]] bool is_silent(int connection) noexcept;

void keep_ungreeted(PrivateFd connection) noexcept;

}  // namespace fairlead::soft
