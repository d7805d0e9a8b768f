#include "verbs/soft/wire/packet.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "verbs/soft/wire/bytes.h"

namespace fairlead::soft {

Packet carried_by(const Packet& packet) noexcept {
  Packet acknowledgement;
  acknowledgement.bth = packet.bth;
  acknowledgement.bth.opcode = static_cast<std::uint8_t>(Opcode::kAcknowledge);
  acknowledgement.bth.psn = packet.carried_ack.psn;
  acknowledgement.bth.kin = true;  // nobody else carries any
  acknowledgement.info = &opcode_info(acknowledgement.bth.opcode);
  acknowledgement.bth.pad = 0;
  acknowledgement.aeth = packet.carried_ack.aeth;
  acknowledgement.bth.encode(acknowledgement.head.data());
  acknowledgement.aeth.encode(acknowledgement.head.data() + Bth::kBytes);
  acknowledgement.payload = packet.payload.first(0);  // none, though somewhere: it may be copied
  return acknowledgement;
}

void decode_headers(Packet& packet) noexcept {
  const OpcodeInfo& info = *packet.info;
  const std::byte* const head = packet.head.data();
  const std::byte* at = head + Bth::kBytes;
  if (info.deth) {
    packet.deth = Deth::decode(at);
    at += Deth::kBytes;
  }
  if (info.reth) {
    packet.reth = Reth::decode(at);
    at += Reth::kBytes;
  }
  if (info.aeth) {
    packet.aeth = Aeth::decode(at);
    at += Aeth::kBytes;
  }
  if (info.immediate) std::memcpy(&packet.immediate, at, kImmediateBytes);
  if (info.invalidate) packet.invalidate_rkey = load32(at);
  if (info.kind == PacketKind::kAtomic) packet.atomic = AtomicEth::decode(at);
  if (info.kind == PacketKind::kMissing) packet.missing = load32(at);
  if (info.kind == PacketKind::kAtomicAck) packet.original = load64(at);
  if (info.carried_ack) packet.carried_ack = CarriedAck::decode(head + info.header_bytes - CarriedAck::kBytes);
}

ParseError parse(std::span<const std::byte> bytes, Packet& packet) noexcept {
  if (bytes.size() < Bth::kBytes + kIcrcBytes) return ParseError::kTooShort;
  std::byte* const head = packet.head.data();
  std::memcpy(head, bytes.data(), std::min(bytes.size(), kMostHeaderBytes));
  std::atomic_signal_fence(std::memory_order_seq_cst);  // a copy, that is, not the same bytes read again
  packet.bth = Bth::decode(head);
  if (packet.bth.version != 0) return ParseError::kVersion;
  const OpcodeInfo& info = opcode_info(packet.bth.opcode);
  if (info.kind == PacketKind::kNone) return ParseError::kOpcode;
  packet.info = &info;
  if (bytes.size() < info.header_bytes + kIcrcBytes) return ParseError::kTooShort;
  if (bytes.size() % 4 != 0) return ParseError::kPadding;
  const std::size_t padded = bytes.size() - info.header_bytes - kIcrcBytes;
  if (packet.bth.pad > padded) return ParseError::kPadding;
  decode_headers(packet);
  packet.payload = bytes.subspan(info.header_bytes, padded - packet.bth.pad);
  return ParseError::kNone;
}

}  // namespace fairlead::soft
