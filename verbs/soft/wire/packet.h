// A received RoCE packet, taken apart. Any bytes parse to a packet or to a reason for dropping them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "verbs/soft/wire/headers.h"

namespace fairlead::soft {

class PayloadSource;

enum class ParseError : std::uint8_t {
  kNone,
  kTooShort,  // less than the headers of its opcode and the ICRC
  kVersion,   // transport header version is not 0
  kOpcode,    // not an opcode of RC, UC, UD or ours
  kPadding,   // the pad count exceeds what follows the headers, or the size is no multiple of 4
};

/// Views the payload where it came; headers that the opcode lacks keep their defaults. All else is a copy: the bytes
/// may lie in memory that another process writes to, and what was checked must be what is used.
struct Packet {
  // From the BTH on; of this opcode the first info->header_bytes. The BTH itself is not in it where the message came
  // joined with others.
  std::array<std::byte, kMostHeaderBytes> head;
  Bth bth;
  const OpcodeInfo* info = nullptr;
  Deth deth;
  Reth reth;
  Aeth aeth;
  AtomicEth atomic;
  std::uint64_t original = 0;   // of an atomic acknowledgement: the word before
  std::uint32_t immediate = 0;  // network byte order, as verbs hands it on
  std::uint32_t invalidate_rkey = 0;
  std::uint32_t missing = 0;  // packets
  CarriedAck carried_ack;
  bool joined = false;                 // it came in one packet with the message before it (bundle.h)
  std::span<const std::byte> payload;  // without padding
  PayloadSource* source = nullptr;     // not null: the payload is there, of as many bytes, and no byte of it here
};

/// The acknowledgement that a packet carries, as if it had come by itself.
[[nodiscard]] Packet carried_by(const Packet& packet) noexcept;

/// Fills in what its head says behind the BTH, as `packet.info` has it.
void decode_headers(Packet& packet) noexcept;

/// `bytes` begin with the BTH and end with the ICRC, which is not verified here.
[[nodiscard]] ParseError parse(std::span<const std::byte> bytes, Packet& packet) noexcept;

}  // namespace fairlead::soft
