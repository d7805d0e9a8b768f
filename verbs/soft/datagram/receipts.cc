#include "verbs/soft/datagram/receipts.h"

#include <algorithm>

#include "verbs/soft/flow_control/flow.h"
#include "verbs/soft/qp/qp_context.h"
#include "verbs/soft/queues/cq.h"

namespace fairlead::soft::receipts {
namespace {

constexpr Nanos kMostHeld = 20 * kMillisecond;
// A window's worth of the smallest packets.
constexpr std::uint32_t kEnoughReceives = 192;

// A full window could now find fewer receive requests than it needs, and the program has yet to see what was received:
// it had no chance to post more.
bool starved(QpContext& domain, std::uint32_t receiver) noexcept {
  const Qp* qp = receiver == 0 ? nullptr : domain.find(receiver);
  return qp != nullptr && qp->srq == nullptr && qp->rq.size() < std::min(kEnoughReceives, qp->rq.capacity() / 2) &&
         !qp->recv_completions.empty();
}

}  // namespace

void owe(Qp& qp, PortSlot& slot, const Gid& peer, const Packet& packet, std::uint32_t peer_qpn) {
  Flow& flow = slot.hear_of(peer);
  flow.on_asked();
  const bool consumes = packet.info->kind == PacketKind::kSend || packet.info->immediate;
  flow.owed = {peer_qpn, packet.bth.psn, consumes ? qp.number() : 0, qp.domain.now()};
  qp.domain.owes_receipt(flow);
}

void take(QpContext& domain, PortSlot& slot, const Gid& peer, const Packet& packet) {
  Flow* flow = slot.find_flow(peer);
  if (flow == nullptr || !flow->met()) return domain.counters.drop_bogus.add();
  const std::size_t freed = flow->on_receipt(packet.bth.dest_qpn, packet.bth.psn, domain.now());
  if (freed > 0) give_back(domain, *flow, freed);
}

bool send(QpContext& domain, Flow& flow) noexcept {
  OwedReceipt& owed = flow.owed;
  if (domain.now() < owed.since + kMostHeld && starved(domain, owed.receiver)) return false;
  PortSlot& slot = flow.port();
  if (!flow.route) {
    const Route route = slot.port->make_route(flow.peer(), owed.peer_qpn, 0, 0);
    if (route.error != 0) return true;  // none: the peer takes back by its timer what it is not told of
    flow.route = route;
  }
  TxBatch& batch = domain.batch(slot, 0);
  std::byte* header = batch.begin(*flow.route, Bth::kBytes, 0);
  Bth bth;
  bth.opcode = static_cast<std::uint8_t>(Opcode::kReceipt);
  bth.dest_qpn = owed.peer_qpn;
  bth.psn = owed.psn;
  bth.encode(header);
  batch.finish(0);
  return true;
}

}  // namespace fairlead::soft::receipts
