#include "verbs/soft/datagram/unreliable.h"

#include <algorithm>

#include "verbs/soft/qp/qp.h"
#include "verbs/soft/qp/qp_context.h"
#include "verbs/soft/rc/completer.h"
#include "verbs/soft/rc/memory_windows.h"
#include "verbs/soft/rc/message_packets.h"

namespace fairlead::soft::unreliable {
namespace {

constexpr std::uint32_t kUseOwnQkey = 1U << 31;  // IBTA 10.2.5: privileged Q_Keys are the queue pair's to give

/// Where a packet goes; refers to what outlives the batch.
struct Way {
  PortSlot& port;
  Flow& flow;
  const Route& route;
  std::uint32_t mtu;
};

enum class Step { kSent, kBlocked };

Way way_of(Qp& qp) noexcept {
  if (qp.connected()) return {*qp.port, qp.peer->flow, qp.route, qp.mtu};
  Path& path = qp.datagram_path(qp.send.cursor);
  return {*path.port, path.peer->flow, path.route, path.port->port->max_mtu()};
}

void start(Qp& qp, SendWqe& wqe, const PortSlot& port, std::uint32_t mtu) noexcept {
  SendState& s = qp.send;
  wqe.packets = wqe.is_local() ? 0 : wqe.length == 0 ? 1 : (wqe.length - 1) / mtu + 1;
  wqe.charge = requester::packet_charge(std::min(wqe.length, mtu), port.least_charge);
  wqe.first = s.next_new;
  s.next_new = wqe.end();
  ++s.started;
}

// The WQE at the cursor cannot be sent.
Step local_error(Qp& qp, ibv_wc_status status) noexcept {
  qp.domain.send_batches();
  on_departed(qp);
  if (qp.current_state() == IBV_QPS_ERR) return Step::kBlocked;
  completer::complete_head(qp, status);
  if (qp.current_state() != IBV_QPS_ERR) qp.enter_send_error();
  return Step::kBlocked;
}

Opcode opcode_of(const Qp& qp, const SendWqe& wqe, bool first, bool last) noexcept {
  if (qp.connected()) return for_uc(requester::message_opcode(wqe, first, last));
  return wqe.has_immediate() ? Opcode::kUdSendOnlyImmediate : Opcode::kUdSendOnly;
}

void put_headers(const Qp& qp, const SendWqe& wqe, const OpcodeInfo& info, const Bth& bth, std::byte* to) noexcept {
  bth.encode(to);
  to += Bth::kBytes;
  if (info.deth) {
    const std::uint32_t qkey = (wqe.remote_qkey & kUseOwnQkey) != 0 ? qp.attr.qkey : wqe.remote_qkey;
    Deth{qkey, qp.number()}.encode(to);
    to += Deth::kBytes;
  }
  requester::put_headers(wqe, info, to);
}

Step send_packet(Qp& qp, SendWqe& wqe, const Way& way) noexcept {
  SendState& s = qp.send;
  Window& window = way.flow.window();
  const bool has_share = way.flow.has_share(wqe.charge);
  if (!has_share || !window.admits(wqe.charge)) {
    (has_share ? window : way.flow.line()).wait(qp.waiting);
    return Step::kBlocked;
  }
  window.force(wqe.charge);
  const bool first = s.cursor_packet == 0;
  const bool last = s.cursor_packet + 1 == wqe.packets;
  const std::uint64_t offset = std::uint64_t{s.cursor_packet} * way.mtu;
  const auto length = static_cast<std::size_t>(std::min<std::uint64_t>(way.mtu, wqe.length - offset));
  const OpcodeInfo& info = opcode_info(static_cast<std::uint8_t>(opcode_of(qp, wqe, first, last)));

  Bth bth;
  bth.opcode = static_cast<std::uint8_t>(opcode_of(qp, wqe, first, last));
  bth.solicited = last && wqe.solicited;
  bth.pad = static_cast<std::uint8_t>(-length & 3);
  bth.dest_qpn = qp.connected() ? qp.attr.dest_qp_num : wqe.remote_qpn;
  bth.psn = wqe.first + s.cursor_packet;

  TxBatch& batch = qp.domain.batch(way.port, std::max<std::size_t>(wqe.segments, 1));
  std::byte* header = batch.begin(way.route, info.header_bytes, length);
  if (!wqe.inlined) batch.lend();
  if (!requester::add_payload(qp, batch, s.cursor, offset, length)) {
    batch.abandon();
    qp.domain.give_back(window, wqe.charge);
    return local_error(qp, IBV_WC_LOC_PROT_ERR);
  }
  bth.receipt_request = way.flow.on_sent(qp.number(), bth.psn, wqe.charge, qp.domain.now());
  put_headers(qp, wqe, info, bth, header);
  batch.finish(bth.pad);
  qp.domain.watch(way.flow);
  if (last) {
    ++s.cursor;
    s.cursor_packet = 0;
  } else {
    ++s.cursor_packet;
  }
  qp.domain.departs(qp);
  return Step::kSent;
}

// Of UC: type 2 windows are bound and invalidated in the order of the queue.
Step execute_locally(Qp& qp, const SendWqe& wqe) noexcept {
  const bool done = wqe.opcode == IBV_WR_BIND_MW ? bind_window(qp, wqe) : invalidate_window(qp, wqe.invalidate);
  if (!done) return local_error(qp, IBV_WC_MW_BIND_ERR);
  ++qp.send.cursor;
  qp.domain.departs(qp);
  return Step::kSent;
}

Step send_next(Qp& qp, SendWqe& wqe, const Way& way) noexcept {
  if (wqe.is_local()) return execute_locally(qp, wqe);
  if (!qp.connected() && wqe.length > way.mtu) return local_error(qp, IBV_WC_LOC_LEN_ERR);
  return send_packet(qp, wqe, way);
}

}  // namespace

bool run(Qp& qp, unsigned quota) noexcept {
  for (; quota > 0; --quota) {
    if (!qp.requests() || !qp.has_work()) return false;
    SendWqe& wqe = qp.sq.at(qp.send.cursor);
    const Way way = way_of(qp);
    if (qp.send.cursor == qp.send.started) start(qp, wqe, way.port, way.mtu);
    if (send_next(qp, wqe, way) == Step::kBlocked) return false;
  }
  return qp.has_work();
}

void on_departed(Qp& qp) noexcept {
  while (qp.sq.head() != qp.send.cursor) completer::complete_head(qp, IBV_WC_SUCCESS);
}

}  // namespace fairlead::soft::unreliable
