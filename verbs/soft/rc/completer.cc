#include "verbs/soft/rc/completer.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "verbs/soft/memory/scatter.h"
#include "verbs/soft/qp/qp.h"
#include "verbs/soft/qp/qp_context.h"
#include "verbs/soft/queues/cq.h"
#include "verbs/soft/rc/requester_limits.h"
#include "verbs/soft/rc/retransmission.h"
#include "verbs/soft/rc/selective.h"
#include "verbs/soft/wire/window_code.h"

namespace fairlead::soft::completer {

using retransmission::heard;
using retransmission::may_repair;
using retransmission::progressed;
using retransmission::rewind;

void complete_head(Qp& qp, ibv_wc_status status, std::uint32_t vendor_error) noexcept {
  const SendWqe& wqe = qp.sq.at(qp.sq.head());
  if (status == IBV_WC_SUCCESS) qp.domain.counters.rdma_sends.add();
  if (wqe.signaled || status != IBV_WC_SUCCESS) {
    ibv_wc completion{};
    completion.wr_id = wqe.id;
    completion.status = status;
    completion.vendor_err = vendor_error;
    completion.byte_len = wqe.length;
    completion.opcode = wqe.completion_opcode();
    qp.sq.pop();
    qp.complete_send(completion);
  } else {
    qp.sq.pop();
  }
  qp.check_drained();
}

namespace {

constexpr std::uint8_t kRetryForever = 7;  // of rnr_retry
constexpr std::uint32_t kMostMissing = 1 << 16;

// After una moved: the cursor never lies behind it. True if it did, so that what was to be sent again had arrived.
bool catch_up(Qp& qp) noexcept {
  SendState& s = qp.send;
  bool behind = false;
  if (static_cast<std::int32_t>(s.cursor - qp.sq.head()) < 0) {
    s.cursor = qp.sq.head();
    s.cursor_packet = 0;
    behind = true;
  }
  if (s.cursor == qp.sq.head() && s.cursor != s.started) {
    const auto acknowledged = static_cast<std::uint32_t>(std::max(0, s.una.since(qp.sq.at(s.cursor).first)));
    behind |= s.cursor_packet < acknowledged;
    s.cursor_packet = std::max(s.cursor_packet, acknowledged);
  }
  return behind;
}

// The peer had received what a timeout took for lost. What was sent behind it is on its way still, or in the peer's
// socket: if any of it is missing, the peer will say so, or stay silent once more. Only READs and atomics are asked
// again, as what they asked for is no longer counted.
void resume(Qp& qp) noexcept {
  SendState& s = qp.send;
  if (!std::exchange(s.timed_out, false)) return;
  while (s.cursor != s.started) {
    const SendWqe& wqe = qp.sq.at(s.cursor);
    const Psn at = wqe.first + s.cursor_packet;
    const Psn stop = s.sent_end.before(wqe.end()) ? s.sent_end : wqe.end();
    const std::int32_t packets = stop.since(at);
    if (wqe.is_local() || wqe.is_answered() || packets <= 0) return;
    const std::size_t charge = static_cast<std::size_t>(packets) * wqe.charge;
    if (!qp.peer_window->take(charge)) return;
    s.in_flight += charge;
    s.cursor_packet += static_cast<std::uint32_t>(packets);
    if (stop != wqe.end()) return;
    ++s.cursor;
    s.cursor_packet = 0;
  }
}

// Everything before `end` was received by the peer. Stops at a READ or an atomic, which their responses alone complete.
void advance(Qp& qp, Psn end) noexcept {
  SendState& s = qp.send;
  bool moved = false;
  std::size_t freed = 0;
  while (s.una.before(end)) {
    const SendWqe& wqe = qp.sq.at(qp.sq.head());
    if (wqe.is_answered()) break;
    const Psn stop = end.before(wqe.end()) ? end : wqe.end();
    freed += static_cast<std::size_t>(stop.since(s.una)) * wqe.charge;
    s.una = stop;
    moved = true;
    if (stop == wqe.end()) {
      complete_head(qp, IBV_WC_SUCCESS);
      if (qp.current_state() == IBV_QPS_ERR) return;  // the completion queue overflowed
    }
  }
  if (!moved) return;
  complete_executed(qp);
  if (qp.current_state() == IBV_QPS_ERR) return;
  const bool arrived = catch_up(qp);
  if (arrived) qp.peer_window->undo_timeout();
  retransmission::charge_probes(qp);
  freed = std::min(freed, s.in_flight);
  s.in_flight -= freed;
  qp.peer_window->on_acknowledged(freed);
  qp.domain.give_back(*qp.peer_window, freed);
  if (arrived) resume(qp);
  heard(qp, arrived);
  if (s.local_error != IBV_WC_SUCCESS && s.cursor == qp.sq.head()) return fail(qp, s.local_error);
  progressed(qp);
}

// The peer has answered something later: READ responses from una on were lost.
void implied_nak(Qp& qp, Psn answered) noexcept {
  SendState& s = qp.send;
  // One flight of answers implies it once; if their PSNs go back, they are another flight, that of a repetition.
  const bool same_flight = s.implied_nak && s.implied_nak_at == s.una && answered.since(s.implied_nak_by) > 0;
  s.implied_nak_by = answered;
  if (same_flight) return;
  s.implied_nak = true;
  s.implied_nak_at = s.una;
  if (!may_repair(qp)) return;
  qp.domain.counters.lost_responses.add();
  qp.reads->on_loss();
  rewind(qp);
}

// What follows on it has come before it: lost or overtaken.
void out_of_turn(Qp& qp, const Packet& packet) noexcept {
  SendState& s = qp.send;
  const Psn psn = packet.bth.psn;
  if (!packet.bth.kin) return implied_nak(qp, psn);
  switch (s.early.keep(qp.domain.packet_store, s.una, packet, 1, qp.domain.now())) {
    case Disorder::Fate::kNoRoom:
      return implied_nak(qp, psn);
    case Disorder::Fate::kKept:
      qp.domain.counters.rcvd_early.add();
      break;
    case Disorder::Fate::kThereAlready:
      break;
  }
  look_for_missing(qp);
}

void on_rnr_nak(Qp& qp, const Aeth& aeth) noexcept {
  SendState& s = qp.send;
  qp.domain.counters.rcvd_rnr_err.add();
  if (s.rnr_wait) return;
  if (qp.attr.rnr_retry != kRetryForever && s.rnr_retries++ >= qp.attr.rnr_retry) {
    qp.domain.counters.retry_rnr_exceeded_err.add();
    return fail(qp, IBV_WC_RNR_RETRY_EXC_ERR, aeth.syndrome);
  }
  rewind(qp);
  s.rnr_wait = true;
  s.progress_at = qp.domain.now();  // the peer lives
  s.retries = 0;
  s.deadline = s.progress_at + rnr_delay(aeth.rnr_timer());
  qp.domain.wake(qp, s.deadline);
}

void on_nak(Qp& qp, const Aeth& aeth) noexcept {
  switch (static_cast<Syndrome>(aeth.syndrome)) {
    case Syndrome::kNakSequence:
      qp.domain.counters.rcvd_seq_err.add();
      if (!may_repair(qp)) return;
      qp.peer_window->on_loss();
      rewind(qp);
      return;
    case Syndrome::kNakInvalidRequest:
      return fail(qp, IBV_WC_REM_INV_REQ_ERR, aeth.syndrome);
    case Syndrome::kNakRemoteAccess:
      return fail(qp, IBV_WC_REM_ACCESS_ERR, aeth.syndrome);
    case Syndrome::kNakRemoteOperation:
      return fail(qp, IBV_WC_REM_OP_ERR, aeth.syndrome);
    default:
      qp.domain.counters.drop_bogus.add();
  }
}

void on_acknowledge(Qp& qp, const Packet& packet) noexcept {
  SendState& s = qp.send;
  const Psn psn = packet.bth.psn;
  if (packet.aeth.is_ack()) {
    advance(qp, psn + 1);
    if (s.una.before(psn + 1) && qp.requests()) out_of_turn(qp, packet);
    return;
  }
  // A NAK acknowledges what lies before it.
  advance(qp, psn);
  if (!qp.requests()) return;
  if (s.una != psn) return implied_nak(qp, psn);
  if (packet.aeth.is_rnr_nak()) {
    on_rnr_nak(qp, packet.aeth);
  } else {
    on_nak(qp, packet.aeth);
  }
}

// The packets are of our kind's. What lies before them has come.
void on_missing(Qp& qp, const Packet& packet) noexcept {
  const Psn psn = packet.bth.psn;
  if (!packet.bth.kin || packet.missing == 0 || packet.missing > kMostMissing)
    return qp.domain.counters.drop_bogus.add();
  qp.domain.counters.rcvd_missing.add();
  if (!packet.aeth.is_ack()) advance(qp, psn);
  if (qp.requests()) requester::on_missing(qp, {psn, psn + packet.missing});
}

// Packets [index, end) of the response to the request at the head of the queue, the next that it waits for.
void take_response(Qp& qp, const SendWqe& wqe, std::uint32_t index, std::uint32_t end, std::span<const std::byte> bytes,
                   PayloadSource* source) noexcept {
  SendState& s = qp.send;
  Placing placing(bytes, source);
  if (!for_each_piece(qp.domain.regions, &qp.pd_ref, qp.sq.segments(qp.sq.head()).first(wqe.segments),
                      std::uint64_t{index} * qp.mtu, bytes.size(), IBV_ACCESS_LOCAL_WRITE,
                      [&placing](std::byte* to, std::size_t part) { return placing.add(to, part); })) {
    return fail(qp, IBV_WC_LOC_PROT_ERR);
  }
  if (!placing.finish()) return implied_nak(qp, s.una);

  retransmission::charge_probes(qp);
  const std::size_t freed = std::min(std::size_t{end - index} * wqe.charge, s.reads_in_flight);
  s.reads_in_flight -= freed;
  qp.reads->on_acknowledged(freed);
  qp.domain.give_back(*qp.reads, freed);
  if (end == read_part_end(qp.mtu, wqe.packets, index) && s.reads_outstanding > 0) --s.reads_outstanding;
  s.una = s.una + (end - index);
  if (s.una == wqe.end()) {
    complete_head(qp, IBV_WC_SUCCESS);
    complete_executed(qp);
    if (qp.current_state() == IBV_QPS_ERR) return;
  }
  const bool arrived = catch_up(qp);
  if (arrived) qp.reads->undo_timeout();
  heard(qp, arrived);
  if (s.local_error != IBV_WC_SUCCESS && s.cursor == qp.sq.head()) return fail(qp, s.local_error);
  progressed(qp);
}

void on_answer(Qp& qp, const Packet& packet) noexcept {
  SendState& s = qp.send;
  const Psn psn = packet.bth.psn;
  advance(qp, psn);
  if (!qp.requests()) return;
  if (s.una != psn) return out_of_turn(qp, packet);
  const SendWqe& wqe = qp.sq.at(qp.sq.head());
  const bool atomic = packet.info->kind == PacketKind::kAtomicAck;
  if (atomic ? !wqe.is_atomic() : !wqe.is_read()) return qp.domain.counters.drop_bogus.add();
  if (packet.info->aeth && !packet.aeth.is_ack()) return fail(qp, IBV_WC_BAD_RESP_ERR);

  // The word is a number on the wire and in memory.
  const std::span bytes = atomic ? std::as_bytes(std::span(&packet.original, 1)) : packet.payload;
  const auto index = static_cast<std::uint32_t>(psn.since(wqe.first));
  const std::uint32_t end = index + (packet.source != nullptr ? packets_of(bytes.size(), qp.mtu) : 1);
  const auto expected =
      std::min<std::uint64_t>(std::uint64_t{end - index} * qp.mtu, wqe.length - std::uint64_t{index} * qp.mtu);
  if (bytes.size() != expected || end > read_part_end(qp.mtu, wqe.packets, index)) return fail(qp, IBV_WC_BAD_RESP_ERR);
  take_response(qp, wqe, index, end, bytes, packet.source);
}

}  // namespace

namespace {

// What one who sees no packet of the connection must guess besides a PSN, once messages have gone to and fro: how many
// the peer has counted. Checked where the peer is known to be of our kind, since others may count otherwise.
bool credible(Qp& qp, const Packet& packet) noexcept {
  if (!packet.bth.kin) return !qp.receive.peer_is_kin;
  if (!packet.info->aeth) return true;
  const Psn counted(packet.aeth.msn);
  return !counted.before(qp.sq.at(qp.sq.head()).messages_before) && !qp.send.messages.before(counted);
}

void take(Qp& qp, const Packet& packet) noexcept {
  switch (packet.info->kind) {
    case PacketKind::kAck:
      return on_acknowledge(qp, packet);
    case PacketKind::kMissing:
      return on_missing(qp, packet);
    default:
      return on_answer(qp, packet);
  }
}

// Those whose turn has come; a later answer acknowledges the SENDs and WRITEs before it.
void take_early(Qp& qp) noexcept {
  SendState& s = qp.send;
  while (qp.requests() && !s.early.empty()) {
    const Psn psn = s.early.front().psn;
    advance(qp, psn);
    if (!qp.requests() || s.una.before(psn)) return;
    std::unique_ptr<EarlyPacket> kept = s.early.take_front();
    Packet packet;
    const bool whole = parse(std::span(kept->bytes).first(kept->size), packet) == ParseError::kNone;
    if (whole && packet.info->kind == PacketKind::kAck) {
      advance(qp, psn + 1);
    } else if (whole && !psn.before(s.una)) {
      on_answer(qp, packet);
    }
    qp.domain.packet_store.give_back(std::move(kept));
  }
}

}  // namespace

void look_for_missing(Qp& qp) noexcept {
  SendState& s = qp.send;
  s.early.report_missing(s.una, qp.domain.now(), [&](const Disorder::Missing& missing) {
    requester::on_unanswered(qp, {missing.first, missing.first + missing.packets});
  });
  qp.domain.look_at_gaps(qp, s.early.deadline());
}

void on_response(Qp& qp, const Packet& packet) noexcept {
  if (!qp.requests()) return qp.domain.counters.drop_state.add();
  SendState& s = qp.send;
  const Psn psn = packet.bth.psn;
  if (psn.before(s.una)) {  // a duplicate, or it crossed a retransmission
    const bool from_peer = packet.bth.kin || !qp.receive.peer_is_kin;
    const bool answers = packet.info->kind == PacketKind::kReadResponse || packet.info->kind == PacketKind::kAtomicAck;
    if (answers) s.early.on_again(psn);
    if (answers && from_peer) heard(qp, true);  // nobody answers twice what was asked once
    return;
  }
  if (!psn.before(s.sent_end) || !credible(qp, packet)) return qp.domain.counters.drop_bogus.add();
  qp.receive.peer_is_kin = packet.bth.kin;
  if (packet.bth.window != 0 && packet.bth.kin && qp.sender != nullptr) {
    qp.domain.counters.rcvd_windows.add();
    qp.peer_window->announce(window_of(packet.bth.window));
  }
  if (s.early.empty()) return take(qp, packet);
  if (psn == s.una) s.early.on_expected(psn, qp.domain.now());
  take(qp, packet);
  take_early(qp);
}

void complete_executed(Qp& qp) noexcept {
  while (qp.sq.head() != qp.send.started && qp.sq.at(qp.sq.head()).executed) complete_head(qp, IBV_WC_SUCCESS, 0);
}

void fail(Qp& qp, ibv_wc_status status, std::uint32_t vendor_error) noexcept {
  qp.domain.send_batches();  // its first packets refer to memory that is the program's again with the completion
  qp.domain.take_back(qp);
  complete_head(qp, status, vendor_error);
  qp.enter_error();
}

Nanos rnr_delay(std::uint8_t timer) noexcept {
  // In units of 10 microseconds.
  static constexpr std::array<std::uint32_t, 32> kDelays = {
      65536, 1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
      256,   384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return kDelays[timer & 31] * 10 * kMicrosecond;
}

}  // namespace fairlead::soft::completer
