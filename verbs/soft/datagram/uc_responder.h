// The responder of UC: checks and executes what arrives; what does not fit is dropped without a word.
//
// A gap in the sequence ends the message that it falls into; the next packet that begins a message resumes.
// Source: IBTA volume 1, 9.8.2.2 (UC responder), 9.9.3 (classes of responder errors).
#pragma once

#include "verbs/soft/wire/packet.h"

namespace fairlead::soft {
class Qp;
}

namespace fairlead::soft::uc_responder {

void on_packet(Qp& qp, const Packet& packet) noexcept;

}  // namespace fairlead::soft::uc_responder
