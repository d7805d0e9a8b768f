// The transport headers of RoCE v2 as values, and their codec: BTH, DETH, RETH, AETH, AtomicETH.
//
// Values are in host byte order; bytes on the wire are big-endian. encode writes exactly kBytes, decode reads them.
// Source: IBTA volume 1, 9.2 (BTH), 9.3.2 (DETH), 9.3.3 (RETH), 9.3.4 (AtomicETH), 9.3.5 and 9.7.5.2.2 (AETH
// syndromes), 9.3.5.3 (AtomicAckETH), 9.3.7 (IETH).
#pragma once

#include <cstddef>
#include <cstdint>

#include "verbs/soft/wire/opcode.h"
#include "verbs/soft/wire/psn.h"

namespace fairlead::soft {

inline constexpr std::uint16_t kRoceUdpPort = 4791;
inline constexpr std::uint16_t kDefaultPKey = 0xffff;
inline constexpr std::size_t kImmediateBytes = 4;
inline constexpr std::size_t kInvalidateBytes = 4;  // IETH: an rkey
inline constexpr std::size_t kAtomicAckBytes = 8;   // AtomicAckETH: the value before
inline constexpr std::size_t kIcrcBytes = 4;
inline constexpr std::uint8_t kMissingBytes = 4;  // of our own: how many packets, from the PSN on
/// From the BTH on, of any opcode.
inline constexpr std::size_t kMostHeaderBytes = 48;

/// Base transport header.
struct Bth {
  static constexpr std::size_t kBytes = 12;
  std::uint8_t opcode = 0;
  bool solicited = false;
  bool migration = false;
  std::uint8_t pad = 0;      // bytes 0..3 after the payload
  std::uint8_t version = 0;  // must be 0
  std::uint16_t pkey = kDefaultPKey;
  bool fecn = false;
  bool becn = false;
  std::uint32_t dest_qpn = 0;  // 24 bits
  bool ack_request = false;
  // Reserved bits, which others ignore; docs/softroce.md has what devices of our kind tell each other by them.
  bool receipt_request = false;
  bool kin = false;         // of our kind: in an answer always, in a request toward who has said so
  std::uint8_t window = 0;  // window_code.h; in answers to our kind
  Psn psn;

  void encode(std::byte* to) const noexcept;
  [[nodiscard]] static Bth decode(const std::byte* from) noexcept;
};

/// Datagram extended transport header: who sends, and the key that lets it.
struct Deth {
  static constexpr std::size_t kBytes = 8;
  std::uint32_t qkey = 0;
  std::uint32_t source_qpn = 0;  // 24 bits

  void encode(std::byte* to) const noexcept;
  [[nodiscard]] static Deth decode(const std::byte* from) noexcept;
};

/// RDMA extended transport header: the remote range of a WRITE or READ.
struct Reth {
  static constexpr std::size_t kBytes = 16;
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
  std::uint32_t length = 0;

  void encode(std::byte* to) const noexcept;
  [[nodiscard]] static Reth decode(const std::byte* from) noexcept;
};

/// Atomic extended transport header: the remote word and the operands.
struct AtomicEth {
  static constexpr std::size_t kBytes = 28;
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
  std::uint64_t swap_or_add = 0;
  std::uint64_t compare = 0;

  void encode(std::byte* to) const noexcept;
  [[nodiscard]] static AtomicEth decode(const std::byte* from) noexcept;
};

/// The upper three bits of a syndrome, and the values the lower five take.
enum class Syndrome : std::uint8_t {
  kAck = 0x1f,  // ACK without end-to-end credits
  kRnrNak = 0x20,
  kNakSequence = 0x60,
  kNakInvalidRequest = 0x61,
  kNakRemoteAccess = 0x62,
  kNakRemoteOperation = 0x63,
};

/// ACK extended transport header.
struct Aeth {
  static constexpr std::size_t kBytes = 4;
  std::uint8_t syndrome = 0;
  std::uint32_t msn = 0;  // 24 bits: messages completed by the responder

  [[nodiscard]] bool is_ack() const noexcept { return (syndrome & 0xe0) == 0; }
  [[nodiscard]] bool is_rnr_nak() const noexcept { return (syndrome & 0xe0) == 0x20; }
  [[nodiscard]] std::uint8_t rnr_timer() const noexcept { return syndrome & 0x1f; }

  void encode(std::byte* to) const noexcept;
  [[nodiscard]] static Aeth decode(const std::byte* from) noexcept;
};

/// An acknowledgement that travels in a message's packet, between devices of our kind: the PSN and AETH of its own.
struct CarriedAck {
  static constexpr std::size_t kBytes = 4 + Aeth::kBytes;
  Psn psn;
  Aeth aeth;

  void encode(std::byte* to) const noexcept;
  [[nodiscard]] static CarriedAck decode(const std::byte* from) noexcept;
};

}  // namespace fairlead::soft
