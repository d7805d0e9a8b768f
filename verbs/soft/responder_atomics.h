// The responder's atomics: each executed once, its result kept for repetitions of the request.
//
// They are the CPU's own atomic instructions, so they are atomic to this host's programs too (IBV_ATOMIC_GLOB).
// Threads: under the domain's lock. Source: IBTA volume 1, 9.4.5 (atomics), 9.7.5.1.4 (duplicates).
#pragma once

#include "verbs/soft/responder_verdict.h"
#include "verbs/soft/wire/packet.h"

namespace fairlead::soft {
class Qp;
namespace responder {

/// Executes the request and owes its response.
[[nodiscard]] Verdict execute_atomic(Qp& qp, const Packet& packet) noexcept;
/// A request seen before: owes the same response again, if its result is among the last max_dest_rd_atomic.
void repeat_atomic(Qp& qp, const Packet& packet) noexcept;

}  // namespace responder
}  // namespace fairlead::soft
