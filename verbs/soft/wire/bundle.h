// Several small messages of an RC queue pair in one packet, between devices of our kind: what their headers, ICRCs and
// frames would take is most of what each takes.
//
//   BTH: opcode 0xd2, the PSN of the first | then for each, which has the next PSN:
//   u8 opcode | u8 1: solicited | u16 bytes of payload | that opcode's headers behind a BTH | payload | to 4 bytes
//
// Each is the only packet of a SEND or a WRITE, with an immediate or without. What the BTH asks for is for the last
// one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "verbs/soft/wire/packet.h"

namespace fairlead::soft {

struct BundledHead {
  static constexpr std::size_t kBytes = 4;
  std::uint8_t opcode = 0;
  bool solicited = false;
  std::uint16_t payload = 0;  // bytes

  void encode(std::byte* to) const noexcept;
  [[nodiscard]] static BundledHead decode(const std::byte* from) noexcept;
};

/// Bytes in a bundle of a message with such an opcode.
[[nodiscard]] constexpr std::size_t bundled_bytes(const OpcodeInfo& info, std::size_t payload) noexcept {
  return BundledHead::kBytes + info.header_bytes - Bth::kBytes + (payload + 3) / 4 * 4;
}

inline constexpr std::uint8_t kMostBundled = 64;  // messages

[[nodiscard]] bool may_be_bundled(const OpcodeInfo& info) noexcept;

/// Takes a bundle apart, which parse() has taken.
class Unbundling {
 public:
  /// `bundle` outlives it.
  explicit Unbundling(const Packet& bundle) noexcept : bth_(bundle.bth), left_(bundle.payload), psn_(bundle.bth.psn) {}

  /// The next message, as if it had come by itself. False: there is none, or what comes is none (malformed()).
  [[nodiscard]] bool next(Packet& message) noexcept;
  [[nodiscard]] bool malformed() const noexcept { return malformed_; }

 private:
  const Bth bth_;
  std::span<const std::byte> left_;
  Psn psn_;
  std::uint8_t taken_ = 0;
  bool malformed_ = false;
};

}  // namespace fairlead::soft
