#include "verbs/soft/wire/headers.h"

#include "verbs/soft/wire/bytes.h"

namespace fairlead::soft {
namespace {

constexpr std::uint32_t bit(bool value, unsigned position) noexcept { return (value ? 1U : 0U) << position; }

}  // namespace

void Bth::encode(std::byte* to) const noexcept {
  store32(to, std::uint32_t{opcode} << 24 | bit(solicited, 23) | bit(migration, 22) | (pad & 3U) << 20 |
                  (version & 15U) << 16 | pkey);
  store32(to + 4, bit(fecn, 31) | bit(becn, 30) | (dest_qpn & 0xffffff));
  store32(to + 8, bit(ack_request, 31) | (window & 31U) << 26 | bit(kin, 25) | bit(receipt_request, 24) | psn.value());
}

Bth Bth::decode(const std::byte* from) noexcept {
  const std::uint32_t first = load32(from);
  const std::uint32_t second = load32(from + 4);
  const std::uint32_t third = load32(from + 8);
  Bth bth;
  bth.opcode = static_cast<std::uint8_t>(first >> 24);
  bth.solicited = (first & 1U << 23) != 0;
  bth.migration = (first & 1U << 22) != 0;
  bth.pad = static_cast<std::uint8_t>(first >> 20 & 3);
  bth.version = static_cast<std::uint8_t>(first >> 16 & 15);
  bth.pkey = static_cast<std::uint16_t>(first);
  bth.fecn = (second & 1U << 31) != 0;
  bth.becn = (second & 1U << 30) != 0;
  bth.dest_qpn = second & 0xffffff;
  bth.ack_request = (third & 1U << 31) != 0;
  bth.window = static_cast<std::uint8_t>(third >> 26 & 31);
  bth.kin = (third & 1U << 25) != 0;
  bth.receipt_request = (third & 1U << 24) != 0;
  bth.psn = Psn(third);
  return bth;
}

void Deth::encode(std::byte* to) const noexcept {
  store32(to, qkey);
  store32(to + 4, source_qpn & 0xffffff);
}

Deth Deth::decode(const std::byte* from) noexcept { return {load32(from), load32(from + 4) & 0xffffff}; }

void Reth::encode(std::byte* to) const noexcept {
  store64(to, address);
  store32(to + 8, rkey);
  store32(to + 12, length);
}

Reth Reth::decode(const std::byte* from) noexcept { return {load64(from), load32(from + 8), load32(from + 12)}; }

void AtomicEth::encode(std::byte* to) const noexcept {
  store64(to, address);
  store32(to + 8, rkey);
  store64(to + 12, swap_or_add);
  store64(to + 20, compare);
}

AtomicEth AtomicEth::decode(const std::byte* from) noexcept {
  return {load64(from), load32(from + 8), load64(from + 12), load64(from + 20)};
}

void Aeth::encode(std::byte* to) const noexcept { store32(to, std::uint32_t{syndrome} << 24 | (msn & 0xffffff)); }

Aeth Aeth::decode(const std::byte* from) noexcept {
  const std::uint32_t word = load32(from);
  return {static_cast<std::uint8_t>(word >> 24), word & 0xffffff};
}

void CarriedAck::encode(std::byte* to) const noexcept {
  store32(to, psn.value());
  aeth.encode(to + 4);
}

CarriedAck CarriedAck::decode(const std::byte* from) noexcept { return {Psn(load32(from)), Aeth::decode(from + 4)}; }

}  // namespace fairlead::soft
