// Receipts: what we tell senders of UC and UD packets that ask for it, so that they do not overrun us (flow.h).
//
// A receipt is a bare BTH that names the queue pair that asked and the PSN at which it did. It is held back for a
// while when the receiving queue pair runs out of receive requests because its program is behind. Only the latest per
// peer matters. Threads: under the domain's lock.
#pragma once

#include <cstdint>

#include "verbs/soft/port/packet_port.h"
#include "verbs/soft/wire/packet.h"

namespace fairlead::soft {
class QpContext;
class Flow;
class Qp;
struct PortSlot;
}  // namespace fairlead::soft

namespace fairlead::soft::receipts {

/// The packet that `qp` has taken in asks for one; `peer_qpn` sent it.
void owe(Qp& qp, PortSlot& slot, const Gid& peer, const Packet& packet, std::uint32_t peer_qpn);
/// A receipt came from a peer.
void take(QpContext& domain, PortSlot& slot, const Gid& peer, const Packet& packet);
/// Puts the receipt that is owed to a flow's peer into a batch; false if it is to be held back.
[[nodiscard]] bool send(QpContext& domain, Flow& flow) noexcept;

}  // namespace fairlead::soft::receipts
