// The responder of UD: a datagram is delivered whole, behind 40 bytes for its GRH, or dropped without a word.
//
// Over IPv4 the IP header stands in the last 20 of the 40 bytes and the first 20 are zero.
// Source: IBTA volume 1, 9.8.3.2 (UD responder), annex A17.4.5.3 (the GRH of RoCE v2).
#pragma once

#include "verbs/soft/port/packet_port.h"
#include "verbs/soft/wire/packet.h"

namespace fairlead::soft {
class Qp;
struct PortSlot;
}  // namespace fairlead::soft

namespace fairlead::soft::ud_responder {

void on_packet(Qp& qp, PortSlot& slot, const RxPacket& raw, const Packet& packet) noexcept;

}  // namespace fairlead::soft::ud_responder
