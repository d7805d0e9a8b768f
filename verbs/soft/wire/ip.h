// IPv4, IPv6 and UDP headers as values, and their codec, for ports that see them.
//
// Values are in host byte order. Headers with options or extensions, and fragments, are not decoded: RoCE v2 has none.
// Source: RFC 791, RFC 8200, RFC 768; IBTA annex A17 (what RoCE v2 puts in them).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "verbs/soft/wire/gid.h"

namespace fairlead::soft {

inline constexpr std::size_t kIpv4HeaderBytes = 20;
inline constexpr std::size_t kIpv6HeaderBytes = 40;
inline constexpr std::size_t kUdpHeaderBytes = 8;
inline constexpr std::uint8_t kDefaultHopLimit = 64;  // Linux'
inline constexpr std::uint16_t kIpv4DontFragment = 0x4000;

enum class IpProtocol : std::uint8_t { kIcmp = 1, kUdp = 17, kBth = 27, kIcmpv6 = 58 };

/// Of the family of `source` and `destination`, which must be the same.
struct IpHeader {
  Gid source;
  Gid destination;
  IpProtocol protocol = IpProtocol::kUdp;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = kDefaultHopLimit;
  std::uint16_t ipv4_id = 0;
  std::uint16_t ipv4_flags = kIpv4DontFragment;
  std::size_t payload_bytes = 0;  // behind this header
  std::uint32_t flow_label = 0;   // of a GRH

  [[nodiscard]] std::size_t bytes() const noexcept { return source.is_ipv4() ? kIpv4HeaderBytes : kIpv6HeaderBytes; }
  /// Writes bytes() bytes.
  void encode(std::byte* to) const noexcept;
  /// `packet` begins with the header, and may be longer than it says (padding). Nothing: it is cut short, of no version
  /// that is known, a fragment, with options, or with a wrong header checksum.
  [[nodiscard]] static std::optional<IpHeader> decode(std::span<const std::byte> packet) noexcept {
    return decode(packet, packet.size());
  }
  /// Of a packet of so many bytes, whose beginning is at hand.
  [[nodiscard]] static std::optional<IpHeader> decode(std::span<const std::byte> head, std::size_t bytes) noexcept;
};

inline constexpr std::size_t kGrhBytes = 40;

/// The header of RoCE v1 (GRH; IBTA volume 1, 8.3): laid out as IPv6's, with IPv4-mapped addresses as they are, and
/// IpProtocol::kBth behind it. Writes kGrhBytes bytes.
void encode_grh(const IpHeader& header, std::byte* to) noexcept;
/// As IpHeader::decode.
[[nodiscard]] std::optional<IpHeader> decode_grh(std::span<const std::byte> head, std::size_t bytes) noexcept;

/// Without a checksum (0), as RoCE v2 has it: the ICRC covers more.
struct UdpHeader {
  std::uint16_t source_port = 0;
  std::uint16_t destination_port = 0;
  std::uint16_t bytes = 0;  // with this header

  void encode(std::byte* to) const noexcept;
  [[nodiscard]] static UdpHeader decode(const std::byte* from) noexcept;
};

/// RFC 1071: of bytes in network order, with the sum of others before them. An odd last byte is padded with zero.
[[nodiscard]] std::uint32_t internet_sum(std::span<const std::byte> bytes, std::uint32_t before = 0) noexcept;
[[nodiscard]] std::uint16_t internet_checksum(std::uint32_t sum) noexcept;
/// What precedes the sum of ICMPv6's bytes (RFC 8200, 8.1).
[[nodiscard]] std::uint32_t icmpv6_pseudo_sum(const Gid& source, const Gid& destination, std::size_t bytes) noexcept;

}  // namespace fairlead::soft
