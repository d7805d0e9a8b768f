#include "verbs/soft/datagram/ud_responder.h"

#include <array>

#include "verbs/soft/datagram/receipts.h"
#include "verbs/soft/memory/scatter.h"
#include "verbs/soft/port/received_grh.h"
#include "verbs/soft/qp/qp.h"
#include "verbs/soft/qp/qp_context.h"
#include "verbs/soft/rc/responder_execute.h"

namespace fairlead::soft::ud_responder {
namespace {

bool place_at(Qp& qp, std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
  const std::byte* from = bytes.data();
  return for_each_piece(qp.domain.regions, qp.current.domain, qp.current.list(), offset, bytes.size(),
                        IBV_ACCESS_LOCAL_WRITE, [&from](std::byte* to, std::size_t part) {
                          const bool placed = place(to, from, part);
                          from += part;
                          return placed;
                        });
}

// What kind of frame it came in, which a completion over RoCE v2 has to say (IBTA A17.4.5.1) and ibv_wc has no field
// for. mlx5 uses the service level: UDP, and which header. UCX takes it from there, on any device, and drops all else.
constexpr std::uint8_t kFrameOverIpv4 = 0x8 | 0x2;
constexpr std::uint8_t kFrameOverIpv6 = 0x8 | 0x1;
constexpr std::uint8_t kFrameWithGrh = 0;

std::uint8_t frame_kind(const RxPacket& raw) noexcept {
  if (raw.version == RoceVersion::kV1) return kFrameWithGrh;
  return raw.source.is_ipv4() ? kFrameOverIpv4 : kFrameOverIpv6;
}

void complete(Qp& qp, const RxPacket& raw, const Packet& packet, std::size_t bytes) noexcept {
  ibv_wc completion{};
  completion.wr_id = qp.current.wqe.id;
  completion.status = IBV_WC_SUCCESS;
  completion.opcode = IBV_WC_RECV;
  completion.byte_len = static_cast<std::uint32_t>(bytes);
  completion.src_qp = packet.deth.source_qpn;
  completion.wc_flags = IBV_WC_GRH;
  completion.sl = frame_kind(raw);
  if (packet.info->immediate) {
    completion.imm_data = packet.immediate;
    completion.wc_flags |= IBV_WC_WITH_IMM;
  }
  qp.current.taken = false;
  qp.domain.counters.rdma_recvs.add();
  qp.complete(qp.recv_completions, completion, packet.bth.solicited);
}

void deliver(Qp& qp, const PortSlot& slot, const RxPacket& raw, const Packet& packet) noexcept {
  Counters& counters = qp.domain.counters;
  // Ports hand out whatever came, which need not keep to the path MTU.
  if (packet.payload.size() > slot.port->max_mtu()) return counters.drop_length.add();
  if (!qp.take_receive()) return counters.drop_no_receive.add();
  const std::size_t bytes = kGrhBytes + packet.payload.size();
  // Class D of 9.9.3: the receive request stays for a datagram that fits.
  if (bytes > qp.current.wqe.length) return counters.drop_length.add();
  if (!place_at(qp, 0, make_grh(raw, destination_of(raw, *slot.port))) || !place_at(qp, kGrhBytes, packet.payload)) {
    responder::fail_receive(qp, IBV_WC_LOC_PROT_ERR);
    return qp.enter_error();
  }
  complete(qp, raw, packet, bytes);
}

}  // namespace

void on_packet(Qp& qp, PortSlot& slot, const RxPacket& raw, const Packet& packet) noexcept {
  if (!qp.responds()) return qp.domain.counters.drop_state.add();
  if (packet.deth.qkey == qp.attr.qkey) {
    deliver(qp, slot, raw, packet);
  } else {
    qp.domain.counters.drop_qkey.add();
  }
  // Whatever became of it: the socket did take it.
  if (packet.bth.receipt_request) receipts::owe(qp, slot, raw.source, packet, packet.deth.source_qpn);
}

}  // namespace fairlead::soft::ud_responder
