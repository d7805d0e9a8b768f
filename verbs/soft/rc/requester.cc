#include "verbs/soft/rc/requester.h"

#include <algorithm>
#include <limits>
#include <span>

#include "verbs/soft/memory/scatter.h"
#include "verbs/soft/qp/qp.h"
#include "verbs/soft/qp/qp_context.h"
#include "verbs/soft/rc/bundle_rows.h"
#include "verbs/soft/rc/completer.h"
#include "verbs/soft/rc/congestion.h"
#include "verbs/soft/rc/memory_windows.h"
#include "verbs/soft/rc/message_packets.h"
#include "verbs/soft/rc/referring.h"
#include "verbs/soft/rc/requester_limits.h"
#include "verbs/soft/rc/responder.h"
#include "verbs/soft/rc/retransmission.h"
#include "verbs/soft/rc/selective.h"

namespace fairlead::soft::requester {
namespace {

// A coalesced run of full packets is 15 long (64 KiB of UDP payload): ask about as often.
constexpr std::uint32_t kAckEvery = 16;
constexpr std::size_t kInHurryBytes = 32 << 10;
constexpr std::size_t kPassedBytes = 128 << 10;  // nobody waits for them, but what is still in the cache is quicker
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
  const std::uint32_t packets = wqe.is_local() ? 0 : packets_of(wqe.length, qp.mtu);
  constexpr std::uint32_t kHalfPsnSpace = 1U << 23;
  if (static_cast<std::uint32_t>(s.next_new.since(s.una)) + packets >= kHalfPsnSpace) return false;
  wqe.packets = packets;
  wqe.refers = (wqe.is_send() || wqe.is_write()) && !wqe.inlined && referring::possible(qp, wqe.length);
  // What stays where it is takes no room.
  const bool stays = wqe.refers || (wqe.is_read() && referring::expected(qp, wqe.length));
  wqe.charge = packet_charge(stays ? 0 : std::min(wqe.length, qp.mtu), qp.port->least_charge);
  wqe.first = s.next_new;
  s.next_new = wqe.end();
  wqe.messages_before = s.messages;
  s.messages = s.messages + messages_of(qp, wqe);
  ++s.started;
  responder::on_own_message(qp);
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
  qp.work_watch.wait();
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

/// While it probes, what it sends may be for nobody.
bool probes_enough(const SendState& s, std::size_t bytes) noexcept {
  return s.probe_bytes > 0 && s.probe_bytes + bytes > Window::kProbeBytes;
}

/// Bytes of payload, as the request's packets are charged: what stays where it is is more than that.
std::size_t on_its_way(const Qp& qp, const SendWqe& wqe) noexcept {
  return wqe.refers ? qp.send.in_flight / wqe.charge * qp.mtu : qp.send.in_flight;
}

/// Whether the window has room for more of this queue pair. What has priority always finds a little; while it has
/// something to do each of the others keeps little on its way, where that is what it would wait behind.
bool has_room(const Qp& qp, const SendWqe& wqe) noexcept {
  const Window& window = *qp.peer_window;
  if (qp.has_priority()) return window.admits(wqe.charge) || qp.send.in_flight + wqe.charge <= kOfPriorityBytes;
  if (!window.admits(wqe.charge)) return false;
  return !qp.domain.hurries() || on_its_way(qp, wqe) <= (qp.passed_by_urgent() ? kPassedBytes : kInHurryBytes);
}

// What the next packets of a SEND or WRITE refer to together; empty: the next one goes by itself.
std::span<const std::byte> next_together(Qp& qp, const SendWqe& wqe) noexcept {
  const SendState& s = qp.send;
  if (!wqe.refers || (wqe.first + s.cursor_packet).before(s.sent_end) || carries_ack(qp, wqe)) return {};
  const std::uint64_t offset = std::uint64_t{s.cursor_packet} * qp.mtu;
  const std::size_t left = wqe.length - offset;
  const auto piece =
      first_piece(qp.domain.regions, &qp.pd_ref, qp.sq.segments(s.cursor).first(wqe.segments), offset, left, 0);
  const std::size_t room = qp.peer_window->room() / wqe.charge;
  const std::size_t most = qp.domain.hurries() ? kInHurryBytes / qp.mtu : std::numeric_limits<std::uint32_t>::max();
  return referring::together(qp, piece, wqe.length, left, static_cast<std::uint32_t>(std::min(room, most)));
}

// One packet of a SEND or WRITE.
Step send_packet(Qp& qp, const SendWqe& wqe, bool others_turn) noexcept {
  SendState& s = qp.send;
  if (!may_send_now(qp)) return Step::kBlocked;
  Window& window = *qp.peer_window;
  const bool probes = s.probing;
  if (probes && probes_enough(s, wqe.charge)) return Step::kBlocked;
  if (!probes && !has_room(qp, wqe)) return wait_for(qp, window);
  const auto refers = probes ? std::span<const std::byte>() : next_together(qp, wqe);
  const std::uint32_t packets = packets_of(refers.size(), qp.mtu);
  const std::size_t charge = probes ? 0 : std::size_t{packets} * wqe.charge;
  if (probes) s.probe_bytes += wqe.charge;
  if (!probes) window.force(charge);
  s.in_flight += charge;  // before it is asked whether there is room for more: else nobody may ask for an answer

  const bool last = s.cursor_packet + packets == wqe.packets;
  s.unacknowledged_run += packets;
  // The last one for now asks: others may fill the window before the next turn, and no more follows of a probe.
  const bool is_last_for_now = probes ? probes_enough(s, wqe.charge) : !has_room(qp, wqe);
  const bool asks = last || s.unacknowledged_run >= kAckEvery || others_turn || is_last_for_now;
  if (!put_packet(qp, {s.cursor, s.cursor_packet, asks, carries_ack(qp, wqe), refers})) {
    if (probes) s.probe_bytes -= wqe.charge;
    s.in_flight -= charge;
    qp.domain.give_back(window, charge);
    return local_error(qp, IBV_WC_LOC_PROT_ERR);
  }
  if (asks) {
    s.unacknowledged_run = 0;
    retransmission::time_round_trip(qp, wqe.first + s.cursor_packet, false);
  }
  packet_sent(qp, wqe, packets);
  return Step::kSent;
}

// Whether a request that asks for [offset, offset + length) of its segments, in so many response packets, may leave
// now.
Step admit_question(Qp& qp, const SendWqe& wqe, std::uint64_t offset, std::size_t length,
                    std::uint32_t packets) noexcept {
  SendState& s = qp.send;
  if (qp.attr.max_rd_atomic == 0) return local_error(qp, IBV_WC_LOC_QP_OP_ERR);
  if (s.reads_outstanding >= qp.attr.max_rd_atomic) return Step::kBlocked;
  if (s.probing && s.reads_outstanding > 0) return Step::kBlocked;
  const auto segments = qp.sq.segments(s.cursor).first(wqe.segments);
  if (!for_each_piece(qp.domain.regions, &qp.pd_ref, segments, offset, length, IBV_ACCESS_LOCAL_WRITE,
                      [](std::byte*, std::size_t) { return true; })) {
    return local_error(qp, IBV_WC_LOC_PROT_ERR);
  }
  const std::size_t charge = std::size_t{packets} * wqe.charge;
  if (!s.probing && !qp.reads->take(charge)) return wait_for(qp, *qp.reads);
  (s.probing ? s.probe_reads : s.reads_in_flight) += charge;
  ++s.reads_outstanding;
  return Step::kSent;
}

void question_sent(Qp& qp, const SendWqe& wqe, std::uint32_t packets) noexcept {
  retransmission::time_round_trip(qp, wqe.first + qp.send.cursor_packet, true);
  packet_sent(qp, wqe, packets);
}

// Long READs are asked for in parts, so that their responses never overrun our own receive buffer. The responder sees
// several READs; the PSNs are those of one.
Step send_read(Qp& qp, const SendWqe& wqe) noexcept {
  const std::uint32_t from = qp.send.cursor_packet;
  const std::uint32_t end = read_part_end(qp.mtu, wqe.packets, from);
  const ReadPart part = read_part(qp, wqe, from, end);
  const Step step = admit_question(qp, wqe, part.offset, part.length, end - from);
  if (step != Step::kSent) return step;
  put_read(qp, wqe, from, end);
  question_sent(qp, wqe, end - from);
  return Step::kSent;
}

Step send_atomic(Qp& qp, const SendWqe& wqe) noexcept {
  const Step step = admit_question(qp, wqe, 0, wqe.length, 1);
  if (step != Step::kSent) return step;
  put_atomic(qp, wqe);
  question_sent(qp, wqe, 1);
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
  qp.work_watch.look();
  const bool repeats = !s.repeats.empty();
  if (qp.requests() && (repeats || qp.has_work()) && !port_has_room(qp)) return false;
  if (repeats && qp.requests() && !send_repeats(qp, quota)) return quota == 0;
  for (; quota > 0; --quota) {
    if (!qp.requests() || s.rnr_wait || s.local_error != IBV_WC_SUCCESS) return false;
    if (!qp.has_work()) return false;
    if (const unsigned joined = join_row(qp, quota); joined > 0) {
      quota -= joined - 1;
      continue;
    }
    SendWqe& wqe = qp.sq.at(s.cursor);
    if (s.cursor == s.started && !start(qp, wqe)) return false;
    const bool others_turn = quota == 1 && qp.domain.queue_pairs() > 1;
    if (send_next(qp, wqe, others_turn) == Step::kBlocked) return false;
  }
  return qp.has_work();
}

}  // namespace fairlead::soft::requester
