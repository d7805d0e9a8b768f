#include "verbs/soft/rc/responder_answers.h"

#include <algorithm>

#include "verbs/soft/qp/qp.h"
#include "verbs/soft/qp/qp_context.h"
#include "verbs/soft/rc/congestion.h"
#include "verbs/soft/rc/referring.h"
#include "verbs/soft/rc/requester_limits.h"
#include "verbs/soft/rc/responder.h"
#include "verbs/soft/rc/responder_questions.h"
#include "verbs/soft/rc/responder_verdict.h"
#include "verbs/soft/wire/bytes.h"
#include "verbs/soft/wire/window_code.h"

namespace fairlead::soft::responder {
namespace {

// Strangers' headers stay as the specification has them.
std::uint8_t announcement(Qp& qp) noexcept {
  if (!qp.receive.asked_by_kin || qp.sender == nullptr) return 0;
  qp.domain.counters.sent_windows.add();
  return window_code(qp.port->share());
}

void put_bth(Qp& qp, std::byte* header, Opcode opcode, std::size_t pad, Psn psn) noexcept {
  Bth bth;
  bth.opcode = static_cast<std::uint8_t>(opcode);
  bth.pad = static_cast<std::uint8_t>(pad);
  bth.dest_qpn = qp.attr.dest_qp_num;
  bth.psn = psn;
  bth.kin = true;
  bth.window = announcement(qp);
  bth.encode(header);
}

void send_result(Qp& qp, Reply& reply) noexcept {
  const std::size_t header_bytes = Bth::kBytes + Aeth::kBytes + kAtomicAckBytes;
  TxBatch& batch = qp.domain.batch(*qp.port, 0);
  std::byte* header = batch.begin(qp.route, header_bytes, 0);
  put_bth(qp, header, Opcode::kAtomicAcknowledge, 0, reply.first);
  Aeth{static_cast<std::uint8_t>(Syndrome::kAck), qp.receive.msn}.encode(header + Bth::kBytes);
  store64(header + Bth::kBytes + Aeth::kBytes, reply.original);
  batch.finish(0);
  ++reply.next;
}

// The next packet of the answer to a READ, or the next ones as one that refers to their payload. kAccess when the
// region is gone, kOperation when its memory is.
Verdict send_response(Qp& qp, Reply& reply) noexcept {
  const std::uint64_t offset = std::uint64_t{reply.next} * qp.mtu;
  const std::size_t left = reply.length - offset;
  std::size_t length = std::min<std::size_t>(qp.mtu, left);
  const std::byte* from = nullptr;
  if (length != 0) {
    from = qp.domain.regions.find(&qp.pd_ref, reply.rkey, reply.address + offset, left, IBV_ACCESS_REMOTE_READ,
                                  qp.number());
    if (from == nullptr) return Verdict::kAccess;
  }
  const auto refers = reply.again
                          ? std::span<const std::byte>()
                          : referring::together(qp, {from, left}, reply.length / referring::kAnswers, left, ~0U);
  if (!refers.empty()) length = refers.size();
  const bool first = reply.next == 0;
  const bool last = length == left;
  const Opcode opcode = first && last ? Opcode::kReadResponseOnly
                        : first       ? Opcode::kReadResponseFirst
                        : last        ? Opcode::kReadResponseLast
                                      : Opcode::kReadResponseMiddle;
  const OpcodeInfo& info = opcode_info(static_cast<std::uint8_t>(opcode));
  TxBatch& batch = qp.domain.batch(*qp.port, 1);
  std::byte* header = batch.begin(qp.route, info.header_bytes, length);
  const std::size_t pad = refers.empty() ? -length & 3 : 0;
  put_bth(qp, header, opcode, pad, reply.first + reply.next);
  if (info.aeth) Aeth{static_cast<std::uint8_t>(Syndrome::kAck), qp.receive.msn}.encode(header + Bth::kBytes);
  if (!refers.empty()) {
    batch.refer(from, length);
    qp.receive.referred = qp.refers = true;
  } else if (!batch.payload(from, length)) {
    batch.abandon();
    return Verdict::kOperation;
  }
  batch.finish(pad);
  count_sent(qp, info.header_bytes + length + pad + kIcrcBytes);
  reply.next += packets_of(length, qp.mtu);
  return Verdict::kAccept;
}

void put_answer(Qp& qp, Psn psn, std::uint8_t syndrome) noexcept {
  TxBatch& batch = qp.domain.batch(*qp.port, 0);
  std::byte* header = batch.begin(qp.route, Bth::kBytes + Aeth::kBytes, 0);
  put_bth(qp, header, Opcode::kAcknowledge, 0, psn);
  Aeth{syndrome, qp.receive.msn}.encode(header + Bth::kBytes);
  batch.finish(0);
}

void send_answer(Qp& qp) noexcept {
  ReceiveState& r = qp.receive;
  put_answer(qp, r.ack_psn, r.ack_syndrome);
  r.ack_due = false;
}

}  // namespace

void send_refusal(Qp& qp, Psn psn, Syndrome syndrome) noexcept {
  put_answer(qp, psn, static_cast<std::uint8_t>(syndrome));
}

void owe_answer(Qp& qp, Psn psn, std::uint8_t syndrome) noexcept {
  ReceiveState& r = qp.receive;
  if (r.ack_due) qp.domain.counters.ack_deferred.add();
  r.ack_due = true;
  qp.held.unlink();
  r.ack_psn = psn;
  r.ack_syndrome = syndrome;
  qp.domain.make_ready(qp);
}

void send_missing(Qp& qp, Psn psn, std::uint32_t packets, bool next) noexcept {
  TxBatch& batch = qp.domain.batch(*qp.port, 0);
  std::byte* header = batch.begin(qp.route, Bth::kBytes + Aeth::kBytes + kMissingBytes, 0);
  put_bth(qp, header, Opcode::kMissing, 0, psn);
  const Syndrome syndrome = next && qp.receive.reply_count == 0 ? Syndrome::kNakSequence : Syndrome::kAck;
  Aeth{static_cast<std::uint8_t>(syndrome), qp.receive.msn}.encode(header + Bth::kBytes);
  store32(header + Bth::kBytes + Aeth::kBytes, packets);
  batch.finish(0);
  qp.domain.counters.sent_missing.add();
}

void owe_ack(Qp& qp, Psn psn) noexcept { owe_answer(qp, psn, static_cast<std::uint8_t>(Syndrome::kAck)); }

void push_reply(Qp& qp, const Reply& reply) noexcept {
  ReceiveState& r = qp.receive;
  r.replies[(r.reply_head + r.reply_count++) % r.replies.size()] = reply;
  qp.domain.make_ready(qp);
}

void hold_ack(Qp& qp, Psn psn) noexcept {
  ReceiveState& r = qp.receive;
  if (r.ack_due) return owe_ack(qp, psn);
  r.ack_due = true;
  r.ack_psn = psn;
  r.ack_syndrome = static_cast<std::uint8_t>(Syndrome::kAck);
  qp.domain.hold(qp);
}

void die(Qp& qp, Psn psn, Syndrome syndrome) noexcept {
  owe_answer(qp, psn, static_cast<std::uint8_t>(syndrome));
  qp.receive.dying = true;
}

bool has_answers(const Qp& qp) noexcept {
  return qp.receive.reply_count > 0 || (qp.receive.ack_due && !qp.held.linked());
}

bool holds_ack(const Qp& qp) noexcept { return qp.held.linked() && qp.receive.reply_count == 0; }

void send_held_ack(Qp& qp) noexcept {
  const ReceiveState& r = qp.receive;
  qp.held.unlink();
  if (r.reply_count == 0 || r.ack_psn.before(r.replies[r.reply_head].first)) send_answer(qp);
}

CarriedAck take_held_ack(Qp& qp) noexcept {
  ReceiveState& r = qp.receive;
  qp.held.unlink();
  r.ack_due = false;
  return {r.ack_psn, {r.ack_syndrome, r.msn}};
}

bool run(Qp& qp, unsigned quota) noexcept {
  ReceiveState& r = qp.receive;
  if (r.reply_count > 0 && !port_has_room(qp)) return false;
  while (r.reply_count > 0 && quota > 0) {
    if (!may_send_now(qp)) return false;
    Reply& reply = r.replies[r.reply_head];
    if (reply.atomic) {
      send_result(qp, reply);
    } else if (const Verdict verdict = send_response(qp, reply); verdict != Verdict::kAccept) {
      if (reply.again) {  // the peer may have the answer, and the program knows; else it asks once more
        drop_oldest_reply(r);
        qp.domain.counters.drop_bogus.add();
        continue;
      }
      r.reply_count = 0;
      die(qp, reply.first + reply.next,
          verdict == Verdict::kAccess ? Syndrome::kNakRemoteAccess : Syndrome::kNakRemoteOperation);
      break;
    }
    --quota;
    r.answered = std::max(r.answered, reply.position + reply.next);
    if (reply.next == reply.packets) drop_oldest_reply(r);
  }
  if (r.reply_count > 0) return true;
  if (!r.ack_due || qp.held.linked()) return false;
  send_answer(qp);
  if (r.dying) {
    r.dying = false;
    qp.enter_error();
    r.dead = true;
    // Memory that is registered and gone (remote operation) is as much out of reach as what is not granted.
    const bool invalid = static_cast<Syndrome>(r.ack_syndrome) == Syndrome::kNakInvalidRequest;
    qp.raise(invalid ? IBV_EVENT_QP_REQ_ERR : IBV_EVENT_QP_ACCESS_ERR);
  }
  return false;
}

}  // namespace fairlead::soft::responder
