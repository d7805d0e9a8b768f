// The responder's atomics: each executed once, its result kept for repetitions of the request (responder_questions.h).
//
// They are the CPU's own atomic instructions, so they are atomic to this host's programs too.
// Threads: under the domain's lock. Source: IBTA volume 1, 9.4.5 (atomics).
#pragma once

#include "verbs/soft/rc/responder_verdict.h"
#include "verbs/soft/wire/packet.h"

namespace fairlead::soft {
class Qp;
namespace responder {

/// Executes the request and owes its response.
[[nodiscard]] Verdict execute_atomic(Qp& qp, const Packet& packet) noexcept;

}  // namespace responder
}  // namespace fairlead::soft
