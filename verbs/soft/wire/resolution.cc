#include "verbs/soft/wire/resolution.h"

#include <algorithm>

#include "verbs/soft/wire/bytes.h"
#include "verbs/soft/wire/ip.h"

namespace fairlead::soft {
namespace {

// RFC 826: hardware type Ethernet, protocol IPv4, lengths 6 and 4; then operation and the two pairs of addresses.
constexpr std::size_t kArpBytes = 28;
constexpr std::uint32_t kEthernetIpv4 = 0x0001'0800;
constexpr std::uint16_t kLengths = 0x0604;
constexpr std::uint16_t kRequest = 1;
constexpr std::uint16_t kReply = 2;

constexpr std::uint8_t kSolicitation = 135;
constexpr std::uint8_t kAdvertisement = 136;
constexpr std::uint8_t kSourceMacOption = 1;
constexpr std::uint8_t kTargetMacOption = 2;
constexpr std::size_t kMessageBytes = 24;  // type, code, checksum, flags, target
constexpr std::size_t kOptionBytes = 8;    // type, length in units of 8, a MAC
constexpr std::uint32_t kSolicited = 0x4000'0000;
constexpr std::uint32_t kOverride = 0x2000'0000;
constexpr std::uint8_t kHopLimit = 255;  // so that what a router passed on is known by a smaller one

Gid all_nodes() noexcept {
  Gid group;
  group.bytes[0] = 0xff;
  group.bytes[1] = 0x02;
  group.bytes[15] = 1;
  return group;
}

// RFC 4291, 2.7.1: ff02::1:ffXX:XXXX.
Gid solicited_node(const Gid& target) noexcept {
  Gid group = all_nodes();
  group.bytes[11] = 1;
  group.bytes[12] = 0xff;
  std::copy_n(&target.bytes[13], 3, &group.bytes[13]);
  return group;
}

void put_mac(std::byte* to, const Mac& mac) noexcept { std::memcpy(to, mac.bytes.data(), Mac::kBytes); }
Mac get_mac(const std::byte* from) noexcept {
  Mac mac;
  std::memcpy(mac.bytes.data(), from, Mac::kBytes);
  return mac;
}

ResolutionFrame arp(std::uint16_t operation, const Mac& to, const Gid& own, const Mac& own_mac, const Gid& target,
                    const Mac& target_mac) {
  ResolutionFrame frame;
  EthernetHeader{to, own_mac, EtherType::kArp}.encode(frame.bytes.data());
  std::byte* at = &frame.bytes[EthernetHeader::kBytes];
  store32(at, kEthernetIpv4);
  store16(at + 4, kLengths);
  store16(at + 6, operation);
  put_mac(at + 8, own_mac);
  store32(at + 14, own.ipv4());
  put_mac(at + 18, target_mac);
  store32(at + 24, target.ipv4());
  frame.size = kLeastFrame;
  return frame;
}

ResolutionFrame neighbour_discovery(std::uint8_t type, std::uint32_t flags, const Mac& to_mac, const Gid& to,
                                    const Gid& own, const Mac& own_mac, const Gid& target) {
  ResolutionFrame frame;
  EthernetHeader{to_mac, own_mac, EtherType::kIpv6}.encode(frame.bytes.data());
  constexpr std::size_t kBytes = kMessageBytes + kOptionBytes;
  IpHeader ip{own, to, IpProtocol::kIcmpv6};
  ip.hop_limit = kHopLimit;
  ip.payload_bytes = kBytes;
  ip.encode(&frame.bytes[EthernetHeader::kBytes]);
  std::byte* at = &frame.bytes[EthernetHeader::kBytes + kIpv6HeaderBytes];
  at[0] = std::byte{type};
  store32(at + 4, flags);
  std::memcpy(at + 8, target.bytes.data(), target.bytes.size());
  at[kMessageBytes] = std::byte{type == kSolicitation ? kSourceMacOption : kTargetMacOption};
  at[kMessageBytes + 1] = std::byte{1};
  put_mac(at + kMessageBytes + 2, own_mac);
  store16(at + 2, internet_checksum(internet_sum({at, kBytes}, icmpv6_pseudo_sum(own, to, kBytes))));
  frame.size = EthernetHeader::kBytes + kIpv6HeaderBytes + kBytes;
  return frame;
}

std::optional<Resolution> parse_arp(std::span<const std::byte> body) noexcept {
  if (body.size() < kArpBytes) return std::nullopt;
  const std::byte* at = body.data();
  const std::uint16_t operation = load16(at + 6);
  if (load32(at) != kEthernetIpv4 || load16(at + 4) != kLengths) return std::nullopt;
  if (operation != kRequest && operation != kReply) return std::nullopt;
  Resolution message;
  message.sender = Gid::from_ipv4(load32(at + 14));
  message.sender_mac = get_mac(at + 8);
  const Gid target = Gid::from_ipv4(load32(at + 24));
  // Who announces itself may use either operation, and asks for its own address.
  if (operation == kRequest && target != message.sender) {
    message.target = target;
    return message;
  }
  message.kind = Resolution::Kind::kAnswer;
  message.target = message.sender;
  message.target_mac = message.sender_mac;
  return message;
}

// The MAC in the option of that type; null where there is none.
Mac option(std::span<const std::byte> options, std::uint8_t type) noexcept {
  while (options.size() >= kOptionBytes) {
    const std::size_t length = static_cast<std::size_t>(options[1]) * 8;
    if (length == 0 || length > options.size()) break;
    if (options[0] == std::byte{type}) return get_mac(&options[2]);
    options = options.subspan(length);
  }
  return {};
}

std::optional<Resolution> parse_neighbour_discovery(std::span<const std::byte> packet) noexcept {
  const auto ip = IpHeader::decode(packet);
  if (!ip || ip->source.is_ipv4() || ip->protocol != IpProtocol::kIcmpv6 || ip->hop_limit != kHopLimit) {
    return std::nullopt;
  }
  const auto message = packet.subspan(kIpv6HeaderBytes, ip->payload_bytes);
  if (message.size() < kMessageBytes) return std::nullopt;
  const std::uint32_t sum = icmpv6_pseudo_sum(ip->source, ip->destination, message.size());
  if (internet_checksum(internet_sum(message, sum)) != 0) return std::nullopt;
  const auto type = static_cast<std::uint8_t>(message[0]);
  if ((type != kSolicitation && type != kAdvertisement) || message[1] != std::byte{0}) return std::nullopt;
  Resolution result;
  result.sender = ip->source;
  std::memcpy(result.target.bytes.data(), &message[8], result.target.bytes.size());
  const auto options = message.subspan(kMessageBytes);
  if (type == kSolicitation) {
    result.sender_mac = option(options, kSourceMacOption);
    return result;
  }
  result.kind = Resolution::Kind::kAnswer;
  result.target_mac = option(options, kTargetMacOption);
  return result;
}

}  // namespace

ResolutionFrame ask(const Gid& own, const Mac& own_mac, const Gid& target, const Mac* known) {
  if (own.is_ipv4()) return arp(kRequest, known != nullptr ? *known : Mac::broadcast(), own, own_mac, target, {});
  const Gid group = solicited_node(target);
  return neighbour_discovery(kSolicitation, 0, known != nullptr ? *known : Mac::of_group(group),
                             known != nullptr ? target : group, own, own_mac, target);
}

ResolutionFrame answer(const Gid& own, const Mac& own_mac, const Gid& to, const Mac& to_mac) {
  if (own.is_ipv4()) return arp(kReply, to_mac, own, own_mac, to, to_mac);
  if (to.is_null()) {
    return neighbour_discovery(kAdvertisement, kOverride, Mac::of_group(all_nodes()), all_nodes(), own, own_mac, own);
  }
  return neighbour_discovery(kAdvertisement, kSolicited | kOverride, to_mac, to, own, own_mac, own);
}

ResolutionFrame announce(const Gid& own, const Mac& own_mac) {
  if (own.is_ipv4()) return arp(kRequest, Mac::broadcast(), own, own_mac, own, {});
  return neighbour_discovery(kAdvertisement, kOverride, Mac::of_group(all_nodes()), all_nodes(), own, own_mac, own);
}

std::optional<Resolution> parse_resolution(std::span<const std::byte> frame) noexcept {
  if (frame.size() < EthernetHeader::kBytes) return std::nullopt;
  const auto body = frame.subspan(EthernetHeader::kBytes);
  switch (EthernetHeader::decode(frame.data()).type) {
    case EtherType::kArp:
      return parse_arp(body);
    case EtherType::kIpv6:
      return parse_neighbour_discovery(body);
    default:
      return std::nullopt;
  }
}

}  // namespace fairlead::soft
