#include "verbs/soft/rc/responder.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "verbs/soft/memory/scatter.h"
#include "verbs/soft/qp/qp.h"
#include "verbs/soft/qp/qp_context.h"
#include "verbs/soft/queues/cq.h"
#include "verbs/soft/rc/memory_windows.h"
#include "verbs/soft/rc/requester_limits.h"
#include "verbs/soft/rc/responder_answers.h"
#include "verbs/soft/rc/responder_atomics.h"
#include "verbs/soft/rc/responder_execute.h"
#include "verbs/soft/rc/responder_questions.h"

namespace fairlead::soft::responder {
namespace {

constexpr std::uint32_t kMaxDmaLength = 1U << 31;

}  // namespace

void fail_receive(Qp& qp, ibv_wc_status status) noexcept {
  if (!qp.current.taken) return;
  ibv_wc completion{};
  completion.wr_id = qp.current.wqe.id;
  completion.status = status;
  completion.opcode = IBV_WC_RECV;
  qp.current.taken = false;
  qp.complete(qp.recv_completions, completion, false);
}

void complete_receive(Qp& qp, const Packet& packet, std::uint64_t bytes) noexcept {
  ibv_wc completion{};
  completion.wr_id = qp.current.wqe.id;
  completion.status = IBV_WC_SUCCESS;
  completion.opcode = packet.info->kind == PacketKind::kSend ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM;
  completion.byte_len = static_cast<std::uint32_t>(bytes);
  completion.src_qp = qp.attr.dest_qp_num;
  if (packet.info->immediate) {
    completion.imm_data = packet.immediate;
    completion.wc_flags = IBV_WC_WITH_IMM;
  } else if (packet.info->invalidate) {
    completion.invalidated_rkey = packet.invalidate_rkey;
    completion.wc_flags = IBV_WC_WITH_INV;
  }
  qp.current.taken = false;
  qp.complete(qp.recv_completions, completion, packet.bth.solicited);
}

/// A WRITE begins anew exactly where the one that is under way stands. It should not (9.7.4.1.2), but Linux rxe goes on
/// so with what was lost behind an acknowledgement in the middle of a message, and nothing else can be meant.
bool resumes_write(const ReceiveState& r, const Packet& packet) noexcept {
  return r.message == PacketKind::kWrite && packet.info->kind == PacketKind::kWrite && packet.info->first &&
         packet.reth.address == r.write_address && packet.reth.rkey == r.write_rkey &&
         packet.reth.length == r.write_left;
}

// IBTA 9.7.4.1.2 and 9.7.4.1.3
bool well_formed(const Qp& qp, const Packet& packet) noexcept {
  const ReceiveState& r = qp.receive;
  const OpcodeInfo& info = *packet.info;
  const bool in_message = r.message != PacketKind::kNone;
  if (info.first ? in_message && !resumes_write(r, packet) : r.message != info.kind) return false;
  if (info.kind == PacketKind::kAtomic) return packet.payload.empty();
  if (info.kind == PacketKind::kRead) return packet.payload.empty() && packet.reth.length <= kMaxDmaLength;
  if (packet.source != nullptr) return info.last || packet.payload.size() % qp.mtu == 0;
  if (!info.last) return packet.payload.size() == qp.mtu;
  if (packet.payload.size() > qp.mtu) return false;
  return info.first || !packet.payload.empty();
}

namespace {

/// `to`: where a message that begins is to go; else as it was.
Verdict check_write(Qp& qp, const Packet& packet, std::byte*& to) noexcept {
  const ReceiveState& r = qp.receive;
  const bool first = packet.info->first;
  const std::uint32_t left = first ? packet.reth.length : r.write_left;
  if (first) {
    if (packet.reth.length > kMaxDmaLength) return Verdict::kInvalid;
    if ((qp.attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) == 0) return Verdict::kAccess;
    // The whole range is checked before the first byte is written. Of nothing, the key does not matter (9.7.4.1.5).
    if (packet.reth.length != 0) {
      to = qp.domain.regions.find(&qp.pd_ref, packet.reth.rkey, packet.reth.address, packet.reth.length,
                                  IBV_ACCESS_REMOTE_WRITE, qp.number());
      if (to == nullptr) return Verdict::kAccess;
    }
  }
  if (packet.info->last ? packet.payload.size() != left : packet.payload.size() >= left) return Verdict::kInvalid;
  if (packet.info->immediate && !qp.take_receive()) return Verdict::kNotReady;
  return Verdict::kAccept;
}

}  // namespace

Verdict execute_write(Qp& qp, const Packet& packet) noexcept {
  ReceiveState& r = qp.receive;
  std::byte* to = nullptr;
  if (const Verdict verdict = check_write(qp, packet, to); verdict != Verdict::kAccept) return verdict;
  if (packet.info->first && !resumes_write(r, packet)) {
    r.write_address = packet.reth.address;
    r.write_rkey = packet.reth.rkey;
    r.write_left = packet.reth.length;
    r.received = 0;
  }
  const std::size_t length = packet.payload.size();
  if (length != 0) {
    // Looked up for every packet: the region may have been deregistered since the last one.
    if (!packet.info->first) {
      to = qp.domain.regions.find(&qp.pd_ref, r.write_rkey, r.write_address, length, IBV_ACCESS_REMOTE_WRITE,
                                  qp.number());
    }
    if (to == nullptr) return Verdict::kAccess;
    Placing placing(packet.payload, packet.source);
    if (!placing.add(to, length)) return Verdict::kOperation;
    if (!placing.finish()) return Verdict::kMissing;
  }
  r.write_address += length;
  r.write_left -= static_cast<std::uint32_t>(length);
  r.received += length;
  return Verdict::kAccept;
}

Verdict execute_send(Qp& qp, const Packet& packet) noexcept {
  ReceiveState& r = qp.receive;
  if (packet.info->first) {
    if (!qp.take_receive()) return Verdict::kNotReady;
    r.received = 0;
  }
  if (r.received + packet.payload.size() > qp.current.wqe.length) {
    fail_receive(qp, IBV_WC_LOC_LEN_ERR);
    return Verdict::kInvalid;
  }
  Placing placing(packet.payload, packet.source);
  if (!for_each_piece(qp.domain.regions, qp.current.domain, qp.current.list(), r.received, packet.payload.size(),
                      IBV_ACCESS_LOCAL_WRITE,
                      [&placing](std::byte* to, std::size_t part) { return placing.add(to, part); })) {
    fail_receive(qp, IBV_WC_LOC_PROT_ERR);
    return Verdict::kOperation;
  }
  if (!placing.finish()) return Verdict::kMissing;
  if (packet.info->invalidate && !invalidate_window(qp, packet.invalidate_rkey)) {
    fail_receive(qp, IBV_WC_REM_INV_REQ_ERR);
    return Verdict::kAccess;
  }
  r.received += packet.payload.size();
  return Verdict::kAccept;
}

namespace {

Verdict execute_read(Qp& qp, const Packet& packet) noexcept {
  const Reth& reth = packet.reth;
  if (!make_room(qp.receive)) return Verdict::kInvalid;
  if (!may_read(qp, reth)) return Verdict::kAccess;
  ask(qp, packet,
      {.packets = response_packets(qp, reth), .rkey = reth.rkey, .address = reth.address, .length = reth.length});
  return Verdict::kAccept;
}

Verdict execute(Qp& qp, const Packet& packet) noexcept {
  if (!well_formed(qp, packet)) return Verdict::kInvalid;
  switch (packet.info->kind) {
    case PacketKind::kSend:
      return execute_send(qp, packet);
    case PacketKind::kWrite:
      return execute_write(qp, packet);
    case PacketKind::kAtomic:
      return execute_atomic(qp, packet);
    default:
      return execute_read(qp, packet);
  }
}

// In a conversation, where each message was answered by one of our own, the acknowledgement waits for the answer. The
// peer that awaits both polls until then, and so receives the answer itself: the case of a latency test that watches
// memory. Taken back as soon as a second message comes unanswered.
bool expects_answer(Qp& qp) noexcept {
  ReceiveState& r = qp.receive;
  if (std::exchange(r.unanswered, true)) r.turns_answered = 0;
  return r.turns_answered == kMostTurns && qp.domain.polled();
}

// As many as its payload takes, where that did not come along.
std::uint32_t packets_in(const Qp& qp, const Packet& packet) noexcept {
  return packet.source == nullptr ? 1 : packets_of(packet.payload.size(), qp.mtu);
}

void accept(Qp& qp, const Packet& packet) noexcept {
  ReceiveState& r = qp.receive;
  const OpcodeInfo& info = *packet.info;
  r.gap_reported = false;
  r.asked_by_kin = packet.bth.kin;
  if (qp.sender != nullptr && !packet.payload.empty()) qp.port->senders.heard(*qp.sender, qp.domain.now());
  r.message = info.last ? PacketKind::kNone : info.kind;
  const bool answered = info.kind == PacketKind::kRead || info.kind == PacketKind::kAtomic;
  const bool answer_expected = info.last && expects_answer(qp);
  const std::uint32_t packets =
      info.kind == PacketKind::kRead ? response_packets(qp, packet.reth) : packets_in(qp, packet);
  r.expected = packet.bth.psn + packets;
  r.position += packets;
  if (info.last || packet.bth.ack_request) r.answerable = r.expected - 1;
  if (info.last) {
    r.msn = (r.msn + 1) & Psn::kMask;
    qp.domain.counters.rdma_recvs.add();
    if (info.kind == PacketKind::kWrite && !info.immediate) qp.domain.placed.add();
  }
  if (info.last && (info.kind == PacketKind::kSend || info.immediate)) {
    complete_receive(qp, packet, r.received);
    if (qp.current_state() == IBV_QPS_ERR) return;  // the completion queue overflowed
  }
  if (answered) {
    // The responses acknowledge the request and all before it.
    if (r.ack_due && is_nak(r.ack_syndrome)) r.ack_due = false;
  } else if (packet.bth.ack_request || (r.ack_due && is_nak(r.ack_syndrome))) {
    // A NAK not yet sent is overtaken: what it missed has come.
    if (answer_expected && info.first) return hold_ack(qp, r.expected - 1);
    owe_ack(qp, r.expected - 1);
  }
}

void refuse(Qp& qp, const Packet& packet, Verdict verdict) noexcept {
  ReceiveState& r = qp.receive;
  const Psn psn = packet.bth.psn;
  switch (verdict) {
    case Verdict::kAccept:
      return;
    case Verdict::kNotReady:
      qp.domain.counters.send_rnr_err.add();
      r.gap_reported = true;  // what follows it on the wire is dropped silently
      r.last_ahead = psn;
      return owe_answer(qp, psn,
                        static_cast<std::uint8_t>(static_cast<unsigned>(Syndrome::kRnrNak) | qp.attr.min_rnr_timer));
    case Verdict::kMissing:
      qp.domain.counters.send_seq_err.add();
      r.gap_reported = true;
      r.last_ahead = psn;
      return owe_answer(qp, psn, static_cast<std::uint8_t>(Syndrome::kNakSequence));
    case Verdict::kInvalid:
      return die(qp, psn, Syndrome::kNakInvalidRequest);
    case Verdict::kAccess:
      return die(qp, psn, Syndrome::kNakRemoteAccess);
    case Verdict::kOperation:
      return die(qp, psn, Syndrome::kNakRemoteOperation);
  }
}

// IBTA 9.7.5.1.4: a SEND or WRITE seen before is acknowledged again, a READ is executed again, of an atomic the result
// is repeated, if they are remembered.
void on_duplicate(Qp& qp, const Packet& packet) noexcept {
  ReceiveState& r = qp.receive;
  qp.domain.counters.duplicate_request.add();
  r.early.on_again(packet.bth.psn);
  if (packet.info->kind == PacketKind::kRead || packet.info->kind == PacketKind::kAtomic) return repeat(qp, packet);
  if (r.ack_due && is_nak(r.ack_syndrome)) return;  // says as much, and more
  // Not what was received last: Linux rxe loses count when it is answered in the middle of a message unasked.
  if ((packet.bth.ack_request || packet.info->last) && r.answerable.before(packet.bth.psn)) {
    r.answerable = packet.bth.psn;
  }
  owe_ack(qp, r.answerable);
}

}  // namespace

void on_own_message(Qp& qp) noexcept {
  ReceiveState& r = qp.receive;
  if (r.unanswered && r.turns_answered < kMostTurns) ++r.turns_answered;
  r.unanswered = false;
}

void report_missing(Qp& qp) noexcept {
  ReceiveState& r = qp.receive;
  r.early.report_missing(r.expected, qp.domain.now(), [&](const Disorder::Missing& missing) {
    send_missing(qp, missing.first, missing.packets, missing.first == r.expected);
  });
  qp.domain.look_at_gaps(qp, r.early.deadline());
}

namespace {

// A requester of our kind sends again what is reported missing, and nothing else: what lies behind is kept for its
// turn. False: there is no room, or it has been told to go back already.
bool keep_early(Qp& qp, const Packet& packet) noexcept {
  ReceiveState& r = qp.receive;
  if (!r.asked_by_kin || r.gap_reported) return false;
  const std::uint32_t packets = packet.info->kind == PacketKind::kRead ? response_packets(qp, packet.reth) : 1;
  switch (r.early.keep(qp.domain.packet_store, r.expected, packet, packets, qp.domain.now())) {
    case Disorder::Fate::kNoRoom:
      return false;
    case Disorder::Fate::kThereAlready:
      qp.domain.counters.duplicate_request.add();
      break;
    case Disorder::Fate::kKept:
      qp.domain.counters.rcvd_early.add();
  }
  report_missing(qp);
  return true;
}

// In order, at last or from the beginning. False: it was refused, or the queue pair has come to its end.
bool take_in(Qp& qp, const Packet& packet) noexcept {
  const Verdict verdict = execute(qp, packet);
  if (qp.current_state() == IBV_QPS_ERR) return false;  // the completion queue overflowed
  if (verdict != Verdict::kAccept) {
    refuse(qp, packet, verdict);
    return false;
  }
  accept(qp, packet);
  return qp.current_state() != IBV_QPS_ERR;
}

// Those whose turn has come. What follows a refused packet comes again, as the requester goes back.
void take_in_early(Qp& qp) noexcept {
  ReceiveState& r = qp.receive;
  bool taken = true;
  while (taken && !r.early.empty() && !r.expected.before(r.early.front().psn)) {
    std::unique_ptr<EarlyPacket> kept = r.early.take_front();
    Packet packet;
    const bool next =
        kept->psn == r.expected && parse(std::span(kept->bytes).first(kept->size), packet) == ParseError::kNone;
    taken = !next || take_in(qp, packet);
    qp.domain.packet_store.give_back(std::move(kept));
  }
  if (!taken) r.early.clear(qp.domain.packet_store);
}

}  // namespace

void on_request(Qp& qp, const Packet& packet) noexcept {
  ReceiveState& r = qp.receive;
  const std::int32_t ahead = packet.bth.psn.since(r.expected);
  if (r.dead && ahead >= 0 && qp.current_state() == IBV_QPS_ERR) {
    // The refusal was lost, or this crossed it.
    r.ack_due = true;
    return qp.domain.make_ready(qp);
  }
  if (r.dead && packet.info->kind == PacketKind::kRead && r.referred && !may_read(qp, packet.reth)) {
    return refuse_repetition(qp, packet);
  }
  if (!qp.responds()) return qp.domain.counters.drop_state.add();
  if (r.dying) return;
  if (ahead < 0) return on_duplicate(qp, packet);
  if (ahead > 0) {
    qp.domain.counters.out_of_seq_request.add();
    if (keep_early(qp, packet)) return;
    // The requester has gone back if its PSNs do: then what we wait for was lost once more.
    const bool again = r.gap_reported && packet.bth.psn.since(r.last_ahead) <= 0;
    r.last_ahead = packet.bth.psn;
    if (r.gap_reported && !again) return;
    r.gap_reported = true;
    qp.domain.counters.send_seq_err.add();
    return owe_answer(qp, r.expected, static_cast<std::uint8_t>(Syndrome::kNakSequence));
  }
  if (r.early.empty()) return static_cast<void>(take_in(qp, packet));
  r.early.on_expected(packet.bth.psn, qp.domain.now());
  if (take_in(qp, packet)) return take_in_early(qp);
  r.early.clear(qp.domain.packet_store);
}

}  // namespace fairlead::soft::responder
