#include "verbs/soft/datagram/uc_responder.h"

#include "verbs/soft/datagram/receipts.h"
#include "verbs/soft/qp/qp.h"
#include "verbs/soft/qp/qp_context.h"
#include "verbs/soft/rc/responder_execute.h"

namespace fairlead::soft::uc_responder {
namespace {

using responder::Verdict;

// What is left of the message is dropped; its receive request waits for the next one.
void abandon(Qp& qp, Counter& reason) noexcept {
  qp.receive.message = PacketKind::kNone;
  reason.add();
}

bool fits(const Qp& qp, const Packet& packet) noexcept {
  const std::uint64_t before = packet.info->first ? 0 : qp.receive.received;
  return before + packet.payload.size() <= qp.current.wqe.length;
}

void execute(Qp& qp, const Packet& packet) noexcept {
  ReceiveState& r = qp.receive;
  Counters& counters = qp.domain.counters;
  const bool send = packet.info->kind == PacketKind::kSend;
  if (!responder::well_formed(qp, packet)) return abandon(qp, counters.drop_message);
  if (send && !qp.take_receive()) return abandon(qp, counters.drop_no_receive);
  if (send && !fits(qp, packet)) return abandon(qp, counters.drop_length);
  switch (send ? responder::execute_send(qp, packet) : responder::execute_write(qp, packet)) {
    case Verdict::kAccept:
      break;
    case Verdict::kNotReady:
      return abandon(qp, counters.drop_no_receive);
    case Verdict::kOperation:
      if (send) return qp.enter_error();  // the receive request was at fault, and has failed
      return abandon(qp, counters.drop_message);
    default:
      return abandon(qp, counters.drop_message);
  }
  r.message = packet.info->last ? PacketKind::kNone : packet.info->kind;
  if (!packet.info->last) return;
  counters.rdma_recvs.add();
  if (send || packet.info->immediate) responder::complete_receive(qp, packet, r.received);
}

}  // namespace

void on_packet(Qp& qp, const Packet& packet) noexcept {
  ReceiveState& r = qp.receive;
  if (!qp.responds()) return qp.domain.counters.drop_state.add();
  if (packet.bth.psn != r.expected) {
    qp.domain.counters.out_of_seq_request.add();
    if (r.message != PacketKind::kNone) abandon(qp, qp.domain.counters.drop_message);
  }
  r.expected = packet.bth.psn + 1;
  if (packet.info->first && r.message != PacketKind::kNone) abandon(qp, qp.domain.counters.drop_message);
  execute(qp, packet);
  if (packet.bth.receipt_request) receipts::owe(qp, *qp.port, qp.route.destination, packet, qp.attr.dest_qp_num);
}

}  // namespace fairlead::soft::uc_responder
