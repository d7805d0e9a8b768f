#include "verbs/soft/rc/requester.h"

#include <algorithm>
#include <cstring>

#include "verbs/soft/memory/scatter.h"
#include "verbs/soft/qp/qp.h"
#include "verbs/soft/qp/qp_context.h"
#include "verbs/soft/rc/completer.h"
#include "verbs/soft/rc/congestion.h"
#include "verbs/soft/rc/memory_windows.h"
#include "verbs/soft/rc/requester_limits.h"
#include "verbs/soft/rc/responder.h"
#include "verbs/soft/rc/retransmission.h"
#include "verbs/soft/wire/bytes.h"

namespace fairlead::soft::requester {
namespace {

// A coalesced run of full packets is 15 long (64 KiB of UDP payload): ask about as often.
constexpr std::uint32_t kAckEvery = 16;
constexpr std::size_t kInHurryBytes = 32 << 10;
constexpr std::size_t kOfPriorityBytes = 16 << 10;

enum class Step { kSent, kBlocked };

bool carries_ack(const Qp& qp, const SendWqe& wqe) noexcept {
  return qp.receive.peer_is_kin && responder::holds_ack(qp) && (wqe.is_send() || wqe.is_write()) && wqe.packets == 1 &&
         wqe.length + CarriedAck::kBytes <= qp.mtu;
}

// What the responder counts it as; each part of a READ is one.
std::uint32_t messages_of(const Qp& qp, const SendWqe& wqe) noexcept {
  if (wqe.is_read()) return (wqe.packets - 1) / (kReadPartBytes / qp.mtu) + 1;
  return wqe.is_local() ? 0 : 1;
}

// Assigns PSNs. False while a fence or the PSN window holds the WQE back.
bool start(Qp& qp, SendWqe& wqe) noexcept {
  SendState& s = qp.send;
  if (wqe.fence && s.reads_outstanding > 0) return false;
  const std::uint32_t packets = wqe.is_local() ? 0 : wqe.length == 0 ? 1 : (wqe.length - 1) / qp.mtu + 1;
  constexpr std::uint32_t kHalfPsnSpace = 1U << 23;
  if (static_cast<std::uint32_t>(s.next_new.since(s.una)) + packets >= kHalfPsnSpace) return false;
  wqe.packets = packets;
  wqe.charge = packet_charge(std::min(wqe.length, qp.mtu), qp.port->least_charge);
  wqe.first = s.next_new;
  s.next_new = wqe.end();
  wqe.messages_before = s.messages;
  s.messages = s.messages + messages_of(qp, wqe);
  ++s.started;
  // What the responder watches, to hold acknowledgements where messages go to and fro.
  ReceiveState& r = qp.receive;
  if (r.unanswered && r.turns_answered < kMostTurns) ++r.turns_answered;
  r.unanswered = false;
  // A held acknowledgement leaves with it: in its packet, or before what the peer's program will receive, whose own
  // SEND must complete first, or behind a plain WRITE, which completes nothing there: it shares the WRITE's datagram.
  if (carries_ack(qp, wqe)) return true;
  if (wqe.is_send() || wqe.has_immediate()) {
    qp.domain.answer_held(qp);
  } else {
    qp.held.unlink();
  }
  return true;
}

Step wait_for(Qp& qp, Window& window) noexcept {
  window.wait(qp.waiting);
  return Step::kBlocked;
}

// The WQE at the cursor cannot be sent; it fails once those before it are done.
Step local_error(Qp& qp, ibv_wc_status status) noexcept {
  qp.send.local_error = status;
  if (qp.send.cursor == qp.sq.head()) completer::fail(qp, status);
  return Step::kBlocked;
}

void packet_sent(Qp& qp, const SendWqe& wqe, std::uint32_t packets) noexcept {
  SendState& s = qp.send;
  s.cursor_packet += packets;
  const Psn end = wqe.first + s.cursor_packet;
  if (s.sent_end.before(end)) {
    s.sent_end = end;
  }
  if (s.cursor_packet == wqe.packets) {
    ++s.cursor;
    s.cursor_packet = 0;
  }
  retransmission::on_sent(qp);
}

}  // namespace

Opcode message_opcode(const SendWqe& wqe, bool first, bool last) noexcept {
  if (wqe.is_send()) {
    if (!last) return first ? Opcode::kSendFirst : Opcode::kSendMiddle;
    if (wqe.has_immediate()) return first ? Opcode::kSendOnlyImmediate : Opcode::kSendLastImmediate;
    if (wqe.opcode == IBV_WR_SEND_WITH_INV) return first ? Opcode::kSendOnlyInvalidate : Opcode::kSendLastInvalidate;
    return first ? Opcode::kSendOnly : Opcode::kSendLast;
  }
  if (!last) return first ? Opcode::kWriteFirst : Opcode::kWriteMiddle;
  if (wqe.has_immediate()) return first ? Opcode::kWriteOnlyImmediate : Opcode::kWriteLastImmediate;
  return first ? Opcode::kWriteOnly : Opcode::kWriteLast;
}

bool add_payload(Qp& qp, TxBatch& batch, const SendWqe& wqe, std::uint64_t offset, std::size_t length) noexcept {
  if (wqe.inlined) {
    batch.payload(qp.sq.inline_bytes(qp.send.cursor) + offset, length);
    return true;
  }
  const auto segments = qp.sq.segments(qp.send.cursor).first(wqe.segments);
  return for_each_piece(qp.domain.regions, &qp.pd_ref, segments, offset, length, 0,
                        [&batch](const std::byte* bytes, std::size_t part) { return batch.payload(bytes, part); });
}

namespace {

// Of what is sent again it would not be known which copy is answered (Karn).
void time_round_trip(Qp& qp, Psn psn) noexcept {
  SendState& s = qp.send;
  if (s.timing || psn.before(s.sent_end)) return;
  s.timing = true;
  s.timed_psn = psn;
  s.timed_at = qp.domain.now();
}

/// While it probes, what it sends may be for nobody: the room is for others.
bool probes_enough(const SendState& s, std::size_t bytes) noexcept {
  return s.probing && s.in_flight > 0 && s.in_flight + bytes > Window::kProbeBytes;
}

/// Whether the window has room for more of this queue pair. What has priority always finds a little; while it has
/// something to do each of the others keeps little on its way, since that is what it would wait behind.
bool has_room(const Qp& qp, const Window& window, std::size_t bytes) noexcept {
  if (qp.has_priority()) return window.admits(bytes) || qp.send.in_flight + bytes <= kOfPriorityBytes;
  return window.admits(bytes) && !(qp.domain.hurries() && qp.send.in_flight > kInHurryBytes);
}

// One packet of a SEND or WRITE.
Step send_packet(Qp& qp, const SendWqe& wqe, bool others_turn) noexcept {
  SendState& s = qp.send;
  if (!may_send_now(qp)) return Step::kBlocked;
  Window& window = *qp.peer_window;
  if (probes_enough(s, wqe.charge)) return Step::kBlocked;
  if (!has_room(qp, window, wqe.charge)) return wait_for(qp, window);
  window.force(wqe.charge);
  s.in_flight += wqe.charge;  // before it is asked whether there is room for more: else nobody may ask for an answer

  const bool first = s.cursor_packet == 0;
  const bool last = s.cursor_packet + 1 == wqe.packets;
  const std::uint64_t offset = std::uint64_t{s.cursor_packet} * qp.mtu;
  const auto length = static_cast<std::size_t>(std::min<std::uint64_t>(qp.mtu, wqe.length - offset));
  const bool carries = carries_ack(qp, wqe);
  const Opcode plain = message_opcode(wqe, first, last);
  const Opcode opcode = carries ? carrying(plain) : plain;
  const OpcodeInfo& info = opcode_info(static_cast<std::uint8_t>(opcode));

  Bth bth;
  bth.opcode = static_cast<std::uint8_t>(opcode);
  bth.solicited = last && wqe.solicited;
  bth.pad = static_cast<std::uint8_t>(-length & 3);
  bth.dest_qpn = qp.attr.dest_qp_num;
  bth.kin = qp.receive.peer_is_kin;
  bth.psn = wqe.first + s.cursor_packet;
  // The last one for now asks: others may fill the window before the next turn, and no more follows of a probe.
  bth.ack_request = last || ++s.unacknowledged_run >= kAckEvery || others_turn || probes_enough(s, wqe.charge) ||
                    !has_room(qp, window, wqe.charge);

  TxBatch& batch = qp.domain.batch(*qp.port, std::max<std::size_t>(wqe.segments, 1));
  std::byte* const headers = batch.begin(qp.route, info.header_bytes, length);
  if (!wqe.inlined) batch.lend();
  bth.encode(headers);
  std::byte* header = headers + Bth::kBytes;
  if (info.reth) {
    Reth{wqe.remote_address, wqe.rkey, wqe.length}.encode(header);
    header += Reth::kBytes;
  }
  if (info.immediate) std::memcpy(header, &wqe.immediate, kImmediateBytes);
  if (info.invalidate) store32(header, wqe.invalidate);
  if (!add_payload(qp, batch, wqe, offset, length)) {
    batch.abandon();
    s.in_flight -= wqe.charge;
    qp.domain.give_back(window, wqe.charge);
    return local_error(qp, IBV_WC_LOC_PROT_ERR);
  }
  batch.finish(bth.pad);
  if (carries) responder::take_held_ack(qp).encode(headers + info.header_bytes - CarriedAck::kBytes);
  count_sent(qp, info.header_bytes + length + bth.pad + kIcrcBytes);
  if (bth.ack_request) {
    s.unacknowledged_run = 0;
    time_round_trip(qp, bth.psn);
  }
  packet_sent(qp, wqe, 1);
  return Step::kSent;
}

// Whether a request that asks for [offset, offset + length) of its segments, in so many response packets, may leave
// now.
Step admit_question(Qp& qp, const SendWqe& wqe, std::uint64_t offset, std::size_t length,
                    std::uint32_t packets) noexcept {
  SendState& s = qp.send;
  if (qp.attr.max_rd_atomic == 0) return local_error(qp, IBV_WC_LOC_QP_OP_ERR);
  if (s.reads_outstanding >= qp.attr.max_rd_atomic) return Step::kBlocked;
  if (s.probing && s.reads_outstanding > 0) return Step::kBlocked;  // as in send_packet
  const auto segments = qp.sq.segments(s.cursor).first(wqe.segments);
  if (!for_each_piece(qp.domain.regions, &qp.pd_ref, segments, offset, length, IBV_ACCESS_LOCAL_WRITE,
                      [](std::byte*, std::size_t) { return true; })) {
    return local_error(qp, IBV_WC_LOC_PROT_ERR);
  }
  const std::size_t charge = std::size_t{packets} * wqe.charge;
  if (!qp.reads->take(charge)) return wait_for(qp, *qp.reads);
  s.reads_in_flight += charge;
  ++s.reads_outstanding;
  return Step::kSent;
}

template <typename Header>
void send_question(Qp& qp, const SendWqe& wqe, Opcode opcode, const Header& header, std::uint32_t packets) noexcept {
  Bth bth;
  bth.opcode = static_cast<std::uint8_t>(opcode);
  bth.dest_qpn = qp.attr.dest_qp_num;
  bth.kin = qp.receive.peer_is_kin;
  bth.psn = wqe.first + qp.send.cursor_packet;
  bth.ack_request = true;
  TxBatch& batch = qp.domain.batch(*qp.port, 0);
  std::byte* to = batch.begin(qp.route, Bth::kBytes + Header::kBytes, 0);
  bth.encode(to);
  header.encode(to + Bth::kBytes);
  batch.finish(0);
  time_round_trip(qp, bth.psn);
  packet_sent(qp, wqe, packets);
}

// Long READs are asked for in parts, so that their responses never overrun our own receive buffer. The responder sees
// several READs; the PSNs are those of one.
Step send_read(Qp& qp, const SendWqe& wqe) noexcept {
  const std::uint32_t from = qp.send.cursor_packet;
  const std::uint32_t end = read_part_end(qp.mtu, wqe.packets, from);
  const std::uint64_t offset = std::uint64_t{from} * qp.mtu;
  const auto length =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(std::uint64_t{end} * qp.mtu, wqe.length) - offset);
  const Step step = admit_question(qp, wqe, offset, length, end - from);
  if (step != Step::kSent) return step;
  send_question(qp, wqe, Opcode::kReadRequest, Reth{wqe.remote_address + offset, wqe.rkey, length}, end - from);
  return Step::kSent;
}

Step send_atomic(Qp& qp, const SendWqe& wqe) noexcept {
  const Step step = admit_question(qp, wqe, 0, wqe.length, 1);
  if (step != Step::kSent) return step;
  const bool swap = wqe.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
  const AtomicEth header{wqe.remote_address, wqe.rkey, swap ? wqe.swap : wqe.compare_add, swap ? wqe.compare_add : 0};
  send_question(qp, wqe, swap ? Opcode::kCompareSwap : Opcode::kFetchAdd, header, 1);
  return Step::kSent;
}

// Once, though the cursor may pass again after going back for what was lost.
Step execute_locally(Qp& qp, SendWqe& wqe) noexcept {
  if (!wqe.executed) {
    const bool done = wqe.opcode == IBV_WR_BIND_MW ? bind_window(qp, wqe) : invalidate_window(qp, wqe.invalidate);
    if (!done) return local_error(qp, IBV_WC_MW_BIND_ERR);
    wqe.executed = true;
  }
  ++qp.send.cursor;
  completer::complete_executed(qp);
  return Step::kSent;
}

Step send_next(Qp& qp, SendWqe& wqe, bool others_turn) noexcept {
  if (wqe.is_local()) return execute_locally(qp, wqe);
  if (wqe.is_read()) return send_read(qp, wqe);
  return wqe.is_atomic() ? send_atomic(qp, wqe) : send_packet(qp, wqe, others_turn);
}

}  // namespace

bool run(Qp& qp, unsigned quota) noexcept {
  SendState& s = qp.send;
  if (qp.requests() && qp.has_work() && !port_has_room(qp)) return false;
  for (; quota > 0; --quota) {
    if (!qp.requests() || s.rnr_wait || s.local_error != IBV_WC_SUCCESS) return false;
    if (!qp.has_work()) return false;
    SendWqe& wqe = qp.sq.at(s.cursor);
    if (s.cursor == s.started && !start(qp, wqe)) return false;
    const bool others_turn = quota == 1 && qp.domain.queue_pairs() > 1;
    if (send_next(qp, wqe, others_turn) == Step::kBlocked) return false;
  }
  return qp.has_work();
}

}  // namespace fairlead::soft::requester
