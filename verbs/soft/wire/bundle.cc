#include "verbs/soft/wire/bundle.h"

#include <atomic>
#include <cstring>

#include "verbs/soft/wire/bytes.h"

namespace fairlead::soft {

void BundledHead::encode(std::byte* to) const noexcept {
  store32(to, std::uint32_t{opcode} << 24 | (solicited ? 1U : 0U) << 16 | payload);
}

BundledHead BundledHead::decode(const std::byte* from) noexcept {
  const std::uint32_t word = load32(from);
  return {static_cast<std::uint8_t>(word >> 24), (word >> 16 & 1) != 0, static_cast<std::uint16_t>(word)};
}

bool may_be_bundled(const OpcodeInfo& info) noexcept {
  const bool message = info.kind == PacketKind::kSend || info.kind == PacketKind::kWrite;
  return message && info.service == Service::kRc && info.first && info.last && !info.invalidate && !info.carried_ack;
}

bool Unbundling::next(Packet& message) noexcept {
  if (left_.empty() || malformed_) return false;
  malformed_ = true;
  if (left_.size() < BundledHead::kBytes || taken_ == kMostBundled) return false;
  const BundledHead head = BundledHead::decode(left_.data());
  const OpcodeInfo& info = opcode_info(head.opcode);
  const std::size_t bytes = bundled_bytes(info, head.payload);
  if (!may_be_bundled(info) || bytes > left_.size()) return false;
  malformed_ = false;
  message.info = &info;
  message.bth = bth_;
  message.bth.opcode = head.opcode;
  message.bth.solicited = head.solicited;
  message.bth.pad = static_cast<std::uint8_t>(-head.payload & 3);
  message.bth.psn = psn_;
  message.bth.ack_request = bth_.ack_request && bytes == left_.size();
  const std::size_t behind = info.header_bytes - Bth::kBytes;
  std::memcpy(message.head.data() + Bth::kBytes, left_.data() + BundledHead::kBytes, behind);
  std::atomic_signal_fence(std::memory_order_seq_cst);  // a copy, that is, not the same bytes read again
  decode_headers(message);
  message.payload = left_.subspan(BundledHead::kBytes + behind, head.payload);
  message.source = nullptr;
  message.joined = taken_++ != 0;
  left_ = left_.subspan(bytes);
  psn_ = psn_ + 1;
  return true;
}

}  // namespace fairlead::soft
