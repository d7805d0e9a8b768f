#include "verbs/soft/rc/message_packets.h"

#include <cstring>

#include "verbs/soft/memory/scatter.h"
#include "verbs/soft/qp/qp.h"
#include "verbs/soft/qp/qp_context.h"
#include "verbs/soft/rc/bundling.h"
#include "verbs/soft/rc/congestion.h"
#include "verbs/soft/rc/responder.h"
#include "verbs/soft/wire/bytes.h"

namespace fairlead::soft::requester {

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

bool add_payload(Qp& qp, TxBatch& batch, std::uint32_t index, std::uint64_t offset, std::size_t length) noexcept {
  const SendWqe& wqe = qp.sq.at(index);
  if (wqe.inlined) {
    batch.payload(qp.sq.inline_bytes(index) + offset, length);
    return true;
  }
  const auto segments = qp.sq.segments(index).first(wqe.segments);
  return for_each_piece(qp.domain.regions, &qp.pd_ref, segments, offset, length, 0,
                        [&batch](const std::byte* bytes, std::size_t part) { return batch.payload(bytes, part); });
}

bool copy_payload(Qp& qp, std::uint32_t index, std::byte* to) noexcept {
  const SendWqe& wqe = qp.sq.at(index);
  if (wqe.inlined) {
    std::memcpy(to, qp.sq.inline_bytes(index), wqe.length);
    return true;
  }
  const auto segments = qp.sq.segments(index).first(wqe.segments);
  return for_each_piece(qp.domain.regions, &qp.pd_ref, segments, 0, wqe.length, 0,
                        [&to](const std::byte* bytes, std::size_t part) {
                          const bool copied = guarded_copy(to, bytes, part, bytes);
                          to += part;
                          return copied;
                        });
}

void put_headers(const SendWqe& wqe, const OpcodeInfo& info, std::byte* to) noexcept {
  if (info.reth) {
    Reth{wqe.remote_address, wqe.rkey, wqe.length}.encode(to);
    to += Reth::kBytes;
  }
  if (info.immediate) std::memcpy(to, &wqe.immediate, kImmediateBytes);
  if (info.invalidate) store32(to, wqe.invalidate);
}

bool put_packet(Qp& qp, const MessagePacket& packet) noexcept {
  const SendWqe& wqe = qp.sq.at(packet.index);
  const std::uint64_t offset = std::uint64_t{packet.number} * qp.mtu;
  const bool refers = !packet.refers.empty();
  const auto length =
      refers ? packet.refers.size() : static_cast<std::size_t>(std::min<std::uint64_t>(qp.mtu, wqe.length - offset));
  const bool first = packet.number == 0;
  const bool last = offset + length == wqe.length;
  const Opcode plain = message_opcode(wqe, first, last);
  const Opcode opcode = packet.carries_ack ? carrying(plain) : plain;
  const OpcodeInfo& info = opcode_info(static_cast<std::uint8_t>(opcode));
  const Psn psn = wqe.first + packet.number;
  if (psn.before(qp.send.sent_end)) on_repeat(qp.send, psn);
  const bool joins = may_join(qp, wqe, packet);
  if (joins) {
    const Joining joined = join(qp, wqe, packet, info);
    if (joined != Joining::kNoBundle) return joined == Joining::kJoined;
  }

  Bth bth;
  bth.opcode = static_cast<std::uint8_t>(opcode);
  bth.solicited = last && wqe.solicited;
  bth.pad = refers ? 0 : static_cast<std::uint8_t>(-length & 3);
  bth.dest_qpn = qp.attr.dest_qp_num;
  bth.kin = qp.receive.peer_is_kin;
  bth.psn = psn;
  bth.ack_request = packet.ack_request;

  TxBatch& batch = qp.domain.batch(*qp.port, std::max<std::size_t>(wqe.segments, 1));
  std::byte* const headers = batch.begin(qp.route, info.header_bytes, length);
  if (!wqe.inlined) batch.lend();
  bth.encode(headers);
  put_headers(wqe, info, headers + Bth::kBytes);
  if (refers) {
    batch.refer(packet.refers.data(), length);
    qp.refers = true;
  } else if (!add_payload(qp, batch, packet.index, offset, length)) {
    batch.abandon();
    return false;
  }
  batch.finish(bth.pad);
  if (joins) batch.open_last();
  if (packet.carries_ack) {
    responder::take_held_ack(qp).encode(headers + info.header_bytes - CarriedAck::kBytes);
  }
  count_sent(qp, info.header_bytes + length + bth.pad + kIcrcBytes);
  return true;
}

namespace {

template <typename Header>
void put_question(Qp& qp, Opcode opcode, Psn psn, const Header& header) noexcept {
  Bth bth;
  bth.opcode = static_cast<std::uint8_t>(opcode);
  bth.dest_qpn = qp.attr.dest_qp_num;
  bth.kin = qp.receive.peer_is_kin;
  bth.psn = psn;
  bth.ack_request = true;
  TxBatch& batch = qp.domain.batch(*qp.port, 0);
  std::byte* to = batch.begin(qp.route, Bth::kBytes + Header::kBytes, 0);
  bth.encode(to);
  header.encode(to + Bth::kBytes);
  batch.finish(0);
}

}  // namespace

ReadPart read_part(const Qp& qp, const SendWqe& wqe, std::uint32_t from, std::uint32_t end) noexcept {
  const std::uint64_t offset = std::uint64_t{from} * qp.mtu;
  const std::uint64_t upto = std::min<std::uint64_t>(std::uint64_t{end} * qp.mtu, wqe.length);
  return {offset, static_cast<std::uint32_t>(upto - offset)};
}

void put_read(Qp& qp, const SendWqe& wqe, std::uint32_t from, std::uint32_t end) noexcept {
  const ReadPart part = read_part(qp, wqe, from, end);
  put_question(qp, Opcode::kReadRequest, wqe.first + from,
               Reth{wqe.remote_address + part.offset, wqe.rkey, part.length});
}

void put_atomic(Qp& qp, const SendWqe& wqe) noexcept {
  const bool swap = wqe.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
  put_question(qp, swap ? Opcode::kCompareSwap : Opcode::kFetchAdd, wqe.first,
               AtomicEth{wqe.remote_address, wqe.rkey, swap ? wqe.swap : wqe.compare_add, swap ? wqe.compare_add : 0});
}

}  // namespace fairlead::soft::requester
