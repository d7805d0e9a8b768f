// What comes in: the ladder of checks that a packet passes before a role sees it.
#include <algorithm>

#include "verbs/soft/datagram/receipts.h"
#include "verbs/soft/datagram/uc_responder.h"
#include "verbs/soft/datagram/ud_responder.h"
#include "verbs/soft/domain/domain.h"
#include "verbs/soft/flow_control/window.h"
#include "verbs/soft/rc/completer.h"
#include "verbs/soft/rc/congestion.h"
#include "verbs/soft/rc/requester_limits.h"
#include "verbs/soft/rc/responder.h"
#include "verbs/soft/wire/bundle.h"
#include "verbs/soft/wire/icrc.h"
#include "verbs/soft/wire/packet.h"

namespace fairlead::soft {
namespace {

constexpr std::uint8_t kExactIcrcsToTrust = 2;
constexpr std::uint16_t kMostSegments = 64;
// Further from what is expected nothing can be that a peer of ours has on its way, nor anything that one of another
// kind would not come back to; of packets whose PSN was guessed it leaves 1 in 128.
constexpr std::int32_t kFarthest = 1 << 16;
// Packets that a window lets a requester of our kind have on its way: each takes 1 KiB at least, and what has priority
// finds a little more.
constexpr std::size_t kMostPackets = (Window::kMostBytes >> 10) + 64;

bool comes_from_peer(const RxPacket& packet, const Route& route) noexcept {
  return packet.source == route.destination && packet.version == route.version &&
         (route.peer_port == 0 || packet.source_port == route.peer_port);
}

bool serves(ibv_qp_type type, Service service) noexcept {
  switch (type) {
    case IBV_QPT_RC:
      return service == Service::kRc;
    case IBV_QPT_UC:
      return service == Service::kUc || service == Service::kManufacturer;
    default:
      return service == Service::kUd || service == Service::kManufacturer;
  }
}

// Of a request that came before its turn. A peer of our kind marks its own, and has no more on its way than its window
// lets it and the answers to its READs take. Else what is kept may be forged, and the true one comes too late.
bool may_be_early(const Qp& qp, const Packet& packet, std::int32_t ahead) noexcept {
  if (!qp.receive.asked_by_kin) return ahead < kFarthest;
  const std::size_t answers = qp.receive.replies.size() * (kReadPartBytes / qp.mtu);
  return packet.bth.kin && ahead <= static_cast<std::int32_t>(kMostPackets + std::min(answers, kMostPackets));
}

// Of RC. A repeated READ or atomic may lie behind all that a long READ answers, so what is remembered decides there.
bool in_window(const Qp& qp, const Packet& packet) noexcept {
  if (!packet.info->request()) {
    const bool answers = packet.bth.psn.since(qp.send.una) > -kFarthest && packet.bth.psn.before(qp.send.sent_end);
    return answers || !qp.requests();
  }
  const std::int32_t ahead = packet.bth.psn.since(qp.receive.expected);
  if (ahead > 0) return may_be_early(qp, packet, ahead);
  const bool remembered = packet.info->kind == PacketKind::kRead || packet.info->kind == PacketKind::kAtomic;
  return remembered || ahead > -kFarthest;
}

// Payload is had from elsewhere only by who sees to it that it arrived.
bool add_payload(const RxPacket& raw, Packet& packet) noexcept {
  const PacketKind kind = packet.info->kind;
  const bool has_payload = kind == PacketKind::kSend || kind == PacketKind::kWrite || kind == PacketKind::kReadResponse;
  if (!has_payload || packet.info->service != Service::kRc || packet.info->carried_ack || !packet.payload.empty())
    return false;
  packet.payload = {static_cast<const std::byte*>(nullptr), raw.payload_bytes};
  packet.source = raw.payload_source;
  return true;
}

}  // namespace

void Domain::receive(PortSlot& slot, const RxPacket& raw) noexcept {
  counters.rcvd_pkts.add();
  counters.rcvd_bytes.add(raw.bytes.size() + raw.payload_bytes);
  if (management::addressed(raw.bytes)) return management::receive(*this, slot, raw, management_);
  Packet packet;
  if (parse(raw.bytes, packet) != ParseError::kNone || (raw.payload_source != nullptr && !add_payload(raw, packet))) {
    return counters.drop_malformed.add();
  }
  Qp* qp = find(packet.bth.dest_qpn);
  if (qp == nullptr || (qp->connected() && qp->port != &slot)) return counters.drop_no_qp.add();
  const bool notification = packet.info->kind == PacketKind::kCongestionNotification;  // of any service
  if (!notification && !serves(qp->type(), packet.info->service)) return counters.drop_wrong_service.add();
  if (qp->connected() && !comes_from_peer(raw, qp->route)) return counters.drop_wrong_source.add();
  // The upper bit tells full from limited members; both may talk to us, a full member.
  if (((packet.bth.pkey ^ kDefaultPKey) & 0x7fff) != 0) return counters.drop_pkey.add();
  if (!icrc_valid(*qp, slot, raw, packet)) return counters.drop_icrc.add();
  if (qp->type() == IBV_QPT_RC && qp->responds() && !notification && !in_window(*qp, packet))
    return counters.drop_bogus.add();
  if (raw.congestion_marked() && qp->congestion && !packet.payload.empty()) on_congestion_mark(*qp);
  if (notification) return on_congestion_notification(*qp);
  if (packet.info->kind == PacketKind::kReceipt) return receipts::take(*this, slot, raw.source, packet);
  if (qp->connected() && qp->current_state() == IBV_QPS_RTR) qp->establish();
  switch (qp->type()) {
    case IBV_QPT_UD:
      return ud_responder::on_packet(*qp, slot, raw, packet);
    case IBV_QPT_UC:
      return uc_responder::on_packet(*qp, packet);
    default:
      if (packet.info->kind == PacketKind::kBundle) return receive_bundle(*qp, packet);
      if (packet.info->carried_ack) completer::on_response(*qp, carried_by(packet));
      return packet.info->request() ? responder::on_request(*qp, packet) : completer::on_response(*qp, packet);
  }
}

void Domain::receive_bundle(Qp& qp, const Packet& bundle) noexcept {
  if (!bundle.bth.kin || bundle.payload.size() > qp.mtu) return counters.drop_malformed.add();
  Unbundling messages(bundle);
  Packet message;
  while (messages.next(message)) {
    if (qp.responds() && !in_window(qp, message)) return counters.drop_bogus.add();
    responder::on_request(qp, message);
  }
  if (messages.malformed()) counters.drop_malformed.add();
}

bool Domain::icrc_valid(Qp& qp, const PortSlot& slot, const RxPacket& raw, const Packet& packet) noexcept {
  if (raw.unchecked) return true;
  const UdpFrame frame = headers_of(raw, *slot.port);
  const std::size_t head = packet.info->header_bytes;
  const auto rest = raw.bytes.subspan(head, raw.bytes.size() - head - kIcrcBytes);
  const std::uint32_t computed = icrc(frame, std::span(packet.head).first(head), rest);
  const std::uint32_t difference = computed ^ load_icrc(rest.data() + rest.size());
  std::uint8_t& exact = qp.receive.exact_icrcs;
  if (difference == 0) {
    if (qp.connected() && exact < kExactIcrcsToTrust) ++exact;
    return true;
  }
  if (raw.ipv4_id_known) return false;
  const auto id = explain_by_ipv4_id(difference, raw.bytes.size());
  if (!id || !frame.source.is_ipv4()) return false;
  // A peer whose ids were known so far (zero, or a segment's number) does not take to counting.
  if (exact == kExactIcrcsToTrust && (*id ^ raw.ipv4_id_guess) >= kMostSegments) return false;
  counters.icrc_explained.add();
  return true;
}

}  // namespace fairlead::soft
