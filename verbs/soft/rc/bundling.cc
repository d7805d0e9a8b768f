#include "verbs/soft/rc/bundling.h"

#include <cstring>

#include "verbs/soft/qp/qp_context.h"
#include "verbs/soft/rc/congestion.h"
#include "verbs/soft/wire/bundle.h"
#include "verbs/soft/wire/bytes.h"

namespace fairlead::soft::requester {
namespace {

/// A message by itself becomes the first of a bundle.
void begin_bundle(TxBatch& batch, TxPacket& packet, std::byte* bytes) noexcept {
  Bth bth = Bth::decode(bytes);
  const OpcodeInfo& info = opcode_info(bth.opcode);
  const std::size_t rest = packet.size - Bth::kBytes - kIcrcBytes;
  const BundledHead head{bth.opcode, bth.solicited,
                         static_cast<std::uint16_t>(packet.size - info.header_bytes - bth.pad - kIcrcBytes)};
  std::memmove(bytes + Bth::kBytes + BundledHead::kBytes, bytes + Bth::kBytes, rest);
  head.encode(bytes + Bth::kBytes);
  bth.opcode = static_cast<std::uint8_t>(Opcode::kBundle);
  bth.solicited = false;
  bth.pad = 0;
  bth.encode(bytes);
  batch.grow_last(BundledHead::kBytes);
}

}  // namespace

bool may_join(const Qp& qp, const SendWqe& wqe, const MessagePacket& packet) noexcept {
  return !wqe.first.before(qp.send.sent_end) && qp.receive.peer_is_kin && qp.port->bundles && wqe.packets == 1 &&
         !packet.carries_ack && packet.refers.empty() && is_small(wqe) &&
         qp.send.bundles != SendState::Bundles::kRefused;
}

TxPacket* open_bundle(Qp& qp, Psn next) noexcept {
  TxBatch& batch = qp.port->batch;
  TxPacket* const last = batch.last_to(qp.route);
  if (last == nullptr || last->messages == 0 || last->messages == kMostBundled) return nullptr;
  const Psn first(load32(static_cast<const std::byte*>(batch.iovs(*last)[0].iov_base) + 8));
  return first + last->messages == next ? last : nullptr;
}

std::byte* bundled_payload(const OpcodeInfo& info, std::byte* at) noexcept {
  return at + BundledHead::kBytes + info.header_bytes - Bth::kBytes;
}

void put_bundled(const SendWqe& wqe, const OpcodeInfo& info, std::byte* at) noexcept {
  BundledHead{static_cast<std::uint8_t>(message_opcode(wqe, true, true)), wqe.solicited,
              static_cast<std::uint16_t>(wqe.length)}
      .encode(at);
  put_headers(wqe, info, at + BundledHead::kBytes);
  std::memset(bundled_payload(info, at) + wqe.length, 0, -wqe.length & 3);
}

Joining join(Qp& qp, const SendWqe& wqe, const MessagePacket& packet, const OpcodeInfo& info) noexcept {
  TxBatch& batch = qp.port->batch;
  TxPacket* const last = open_bundle(qp, wqe.first);
  if (last == nullptr) return Joining::kNoBundle;
  std::byte* const bytes = static_cast<std::byte*>(batch.iovs(*last)[0].iov_base);
  const std::size_t begins = last->messages == 1 ? BundledHead::kBytes : 0, adds = bundled_bytes(info, wqe.length);
  const bool second =
      begins != 0 && qp.send.bundles == SendState::Bundles::kTried;  // while the first is not acknowledged
  if (second || !batch.may_grow(begins + adds) || last->size - Bth::kBytes - kIcrcBytes + begins + adds > qp.mtu)
    return Joining::kNoBundle;

  std::byte* const to = last->icrc + begins;
  if (!copy_payload(qp, packet.index, bundled_payload(info, to))) return Joining::kGone;
  if (begins != 0) begin_bundle(batch, *last, bytes);
  put_bundled(wqe, info, to);
  batch.grow_last(adds);
  if (packet.ack_request) bytes[8] |= std::byte{0x80};
  ++last->messages;
  if (qp.send.bundles == SendState::Bundles::kUntried) qp.send.bundles = SendState::Bundles::kTried;
  if (qp.send.bundles == SendState::Bundles::kTried) qp.send.bundle_end = wqe.first + 1;
  count_joined(qp, begins + adds);
  return Joining::kJoined;
}

void on_acknowledged(SendState& state) noexcept {
  const bool taken = state.bundles == SendState::Bundles::kTried && !state.una.before(state.bundle_end);
  if (taken) state.bundles = SendState::Bundles::kTaken;
}

void on_repeat(SendState& state, Psn psn) noexcept {
  const bool tried = state.bundles == SendState::Bundles::kTried && psn.before(state.bundle_end);
  if (tried) state.bundles = SendState::Bundles::kRefused;
}

}  // namespace fairlead::soft::requester
