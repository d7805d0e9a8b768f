// What responders of RC and UC do alike with a packet that is in its place.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "verbs/soft/rc/responder_verdict.h"
#include "verbs/soft/wire/packet.h"

namespace fairlead::soft {
class Qp;
}

namespace fairlead::soft::responder {

/// Opcodes in sequence, payloads of the right length.
[[nodiscard]] bool well_formed(const Qp& qp, const Packet& packet) noexcept;

/// Check everything, then write. After a refusal nothing of the packet is in memory, but where it is found missing.
[[nodiscard]] Verdict execute_send(Qp& qp, const Packet& packet) noexcept;
[[nodiscard]] Verdict execute_write(Qp& qp, const Packet& packet) noexcept;

/// The receive request in use is done; `bytes` were placed.
void complete_receive(Qp& qp, const Packet& packet, std::uint64_t bytes) noexcept;
/// It fails with its own status, before the rest is flushed.
void fail_receive(Qp& qp, ibv_wc_status status) noexcept;

}  // namespace fairlead::soft::responder
