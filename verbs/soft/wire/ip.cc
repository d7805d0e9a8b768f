#include "verbs/soft/wire/ip.h"

#include "verbs/soft/wire/bytes.h"

namespace fairlead::soft {
namespace {

constexpr std::uint16_t kMoreFragmentsOrOffset = 0x3fff;
constexpr std::uint32_t kFlowLabel = 0xfffff;

std::optional<IpHeader> decode_ipv4(std::span<const std::byte> head, std::size_t bytes) noexcept {
  std::optional<IpHeader> decoded;  // the one that is returned: a copy costs as much as decoding
  const std::byte* at = head.data();
  if (head.size() < kIpv4HeaderBytes || at[0] != std::byte{0x45}) return decoded;
  const std::size_t total = load16(at + 2);
  if (total < kIpv4HeaderBytes || total > bytes) return decoded;
  if (internet_checksum(internet_sum(head.first(kIpv4HeaderBytes))) != 0) return decoded;
  const std::uint16_t flags = load16(at + 6);
  if ((flags & kMoreFragmentsOrOffset) != 0) return decoded;
  IpHeader& header = decoded.emplace();
  header.ipv4_flags = flags;
  header.traffic_class = static_cast<std::uint8_t>(at[1]);
  header.ipv4_id = load16(at + 4);
  header.hop_limit = static_cast<std::uint8_t>(at[8]);
  header.protocol = static_cast<IpProtocol>(at[9]);
  header.source = Gid::from_ipv4(load32(at + 12));
  header.destination = Gid::from_ipv4(load32(at + 16));
  header.payload_bytes = total - kIpv4HeaderBytes;
  return decoded;
}

std::optional<IpHeader> decode_ipv6_layout(std::span<const std::byte> head, std::size_t bytes) noexcept {
  if (head.size() < kIpv6HeaderBytes || static_cast<unsigned>(head[0]) >> 4 != 6) return std::nullopt;
  const std::byte* at = head.data();
  IpHeader header;
  header.payload_bytes = load16(at + 4);
  if (header.payload_bytes + kIpv6HeaderBytes > bytes) return std::nullopt;
  header.traffic_class = static_cast<std::uint8_t>(load32(at) >> 20);
  header.flow_label = load32(at) & kFlowLabel;
  header.protocol = static_cast<IpProtocol>(at[6]);
  header.hop_limit = static_cast<std::uint8_t>(at[7]);
  std::memcpy(header.source.bytes.data(), at + 8, header.source.bytes.size());
  std::memcpy(header.destination.bytes.data(), at + 24, header.destination.bytes.size());
  return header;
}

std::optional<IpHeader> decode_ipv6(std::span<const std::byte> head, std::size_t bytes) noexcept {
  const auto header = decode_ipv6_layout(head, bytes);
  // An IPv4-mapped address on the wire would pass for an IPv4 peer.
  if (!header || header->source.is_ipv4() || header->destination.is_ipv4()) return std::nullopt;
  return header;
}

void encode_ipv4(const IpHeader& header, std::byte* to) noexcept {
  store32(to, 0x45U << 24 | std::uint32_t{header.traffic_class} << 16 |
                  static_cast<std::uint32_t>(kIpv4HeaderBytes + header.payload_bytes));
  store32(to + 4, std::uint32_t{header.ipv4_id} << 16 | header.ipv4_flags);
  store32(to + 8, std::uint32_t{header.hop_limit} << 24 | static_cast<std::uint32_t>(header.protocol) << 16);
  store32(to + 12, header.source.ipv4());
  store32(to + 16, header.destination.ipv4());
  store16(to + 10, internet_checksum(internet_sum({to, kIpv4HeaderBytes})));
}

void encode_ipv6(const IpHeader& header, std::byte* to) noexcept {
  store32(to, 6U << 28 | std::uint32_t{header.traffic_class} << 20 | (header.flow_label & kFlowLabel));
  store32(to + 4, static_cast<std::uint32_t>(header.payload_bytes) << 16 |
                      static_cast<std::uint32_t>(header.protocol) << 8 | header.hop_limit);
  std::memcpy(to + 8, header.source.bytes.data(), header.source.bytes.size());
  std::memcpy(to + 24, header.destination.bytes.data(), header.destination.bytes.size());
}

}  // namespace

void IpHeader::encode(std::byte* to) const noexcept {
  source.is_ipv4() ? encode_ipv4(*this, to) : encode_ipv6(*this, to);
}

std::optional<IpHeader> IpHeader::decode(std::span<const std::byte> head, std::size_t bytes) noexcept {
  if (head.empty()) return std::nullopt;
  const auto version = static_cast<unsigned>(head[0]) >> 4;
  if (version == 4) return decode_ipv4(head, bytes);
  return version == 6 ? decode_ipv6(head, bytes) : std::nullopt;
}

void encode_grh(const IpHeader& header, std::byte* to) noexcept {
  IpHeader grh = header;
  grh.protocol = IpProtocol::kBth;
  encode_ipv6(grh, to);
}

std::optional<IpHeader> decode_grh(std::span<const std::byte> head, std::size_t bytes) noexcept {
  const auto header = decode_ipv6_layout(head, bytes);
  if (!header || header->protocol != IpProtocol::kBth) return std::nullopt;
  return header;
}

void UdpHeader::encode(std::byte* to) const noexcept {
  store32(to, std::uint32_t{source_port} << 16 | destination_port);
  store32(to + 4, std::uint32_t{bytes} << 16);
}

UdpHeader UdpHeader::decode(const std::byte* from) noexcept {
  return {load16(from), load16(from + 2), load16(from + 4)};
}

std::uint32_t internet_sum(std::span<const std::byte> bytes, std::uint32_t before) noexcept {
  // Words of four bytes have the same sum once it is folded (RFC 1071, 2).
  std::uint64_t sum = before;
  std::size_t i = 0;
  for (; i + 4 <= bytes.size(); i += 4) sum += load32(&bytes[i]);
  if (i + 2 <= bytes.size()) {
    sum += load16(&bytes[i]);
    i += 2;
  }
  if (i < bytes.size()) sum += std::uint64_t{static_cast<std::uint8_t>(bytes[i])} << 8;
  sum = (sum >> 32) + (sum & 0xffffffff);
  return static_cast<std::uint32_t>((sum >> 16) + (sum & 0xffff));
}

std::uint16_t internet_checksum(std::uint32_t sum) noexcept {
  while (sum > 0xffff) sum = (sum >> 16) + (sum & 0xffff);
  return static_cast<std::uint16_t>(~sum);
}

std::uint32_t icmpv6_pseudo_sum(const Gid& source, const Gid& destination, std::size_t bytes) noexcept {
  std::uint32_t sum = static_cast<std::uint32_t>(bytes) + static_cast<std::uint32_t>(IpProtocol::kIcmpv6);
  sum = internet_sum(std::as_bytes(std::span(source.bytes)), sum);
  return internet_sum(std::as_bytes(std::span(destination.bytes)), sum);
}

}  // namespace fairlead::soft
