#include "verbs/soft/port/frame/roce_frame.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "verbs/soft/wire/ip.h"

namespace fairlead::soft {
namespace {

constexpr std::size_t kMostHead = EthernetHeader::kBytes + kIpv6HeaderBytes + kUdpHeaderBytes;

// `head` is a copy of how `body` begins.
bool parse_v1(std::span<const std::byte> head, std::span<const std::byte> body, const StationNames& own,
              RxPacket& packet) noexcept {
  const auto grh = decode_grh(head, body.size());
  if (!grh || (grh->destination != own.link_local && grh->destination != own.address)) return false;
  packet = {};
  packet.bytes = body.subspan(kGrhBytes, grh->payload_bytes);
  packet.source = grh->source;
  packet.traffic_class = grh->traffic_class;
  packet.ipv4_id_known = true;
  packet.version = RoceVersion::kV1;
  packet.to_link_local = grh->destination == own.link_local;
  packet.hop_limit = grh->hop_limit;
  packet.flow_label = grh->flow_label;
  return true;
}

bool parse_v2(std::span<const std::byte> head, std::span<const std::byte> body, const Gid& own,
              RxPacket& packet) noexcept {
  const auto ip = IpHeader::decode(head, body.size());
  if (!ip || ip->destination != own || ip->protocol != IpProtocol::kUdp) return false;
  if (ip->payload_bytes < kUdpHeaderBytes) return false;
  const UdpHeader udp = UdpHeader::decode(&head[ip->bytes()]);
  if (udp.destination_port != kRoceUdpPort || udp.bytes != ip->payload_bytes) return false;
  packet = {body.subspan(ip->bytes() + kUdpHeaderBytes, ip->payload_bytes - kUdpHeaderBytes),
            ip->source,
            udp.source_port,
            ip->ipv4_id,
            ip->traffic_class,
            true,
            ip->ipv4_flags};
  return true;
}

EtherType ip_type(const Gid& address) noexcept { return address.is_ipv4() ? EtherType::kIpv4 : EtherType::kIpv6; }

}  // namespace

bool parse_roce_frame(std::span<const std::byte> frame, const StationNames& own, RxPacket& packet) noexcept {
  if (frame.size() < EthernetHeader::kBytes) return false;
  // The frame may lie in memory that another process writes to, and what was checked must be what is used.
  std::array<std::byte, kMostHead> copy;
  const auto copied = std::span(copy).first(std::min(frame.size(), kMostHead));
  std::memcpy(copied.data(), frame.data(), copied.size());
  std::atomic_signal_fence(std::memory_order_seq_cst);
  const EthernetHeader ethernet = EthernetHeader::decode(copied.data());
  if (ethernet.destination != own.mac) return false;
  const auto head = copied.subspan(EthernetHeader::kBytes);
  const auto body = frame.subspan(EthernetHeader::kBytes);
  if (ethernet.type == EtherType::kRoce) return parse_v1(head, body, own, packet);
  return ethernet.type == ip_type(own.address) && parse_v2(head, body, own.address, packet);
}

std::byte* put_roce_headers(const Route& route, std::size_t packet_bytes, const Mac& own, std::uint32_t mtu,
                            std::byte* room) noexcept {
  const bool v1 = route.version == RoceVersion::kV1;
  IpHeader ip{route.source, route.destination};
  ip.traffic_class = route.traffic_class;
  if (route.hop_limit != 0) ip.hop_limit = route.hop_limit;
  ip.flow_label = v1 ? route.flow_label : 0;
  ip.payload_bytes = (v1 ? 0 : kUdpHeaderBytes) + packet_bytes;
  std::byte* const network = room + EthernetHeader::kBytes;
  std::byte* const behind = network + (v1 ? kGrhBytes : ip.bytes());
  if (static_cast<std::size_t>(behind - network) + ip.payload_bytes > mtu) return nullptr;
  EthernetHeader{{}, own, v1 ? EtherType::kRoce : ip_type(route.source)}.encode(room);
  if (v1) {
    encode_grh(ip, network);
    return behind;
  }
  ip.encode(network);
  UdpHeader{route.source_port, kRoceUdpPort, static_cast<std::uint16_t>(ip.payload_bytes)}.encode(behind);
  return behind + kUdpHeaderBytes;
}

Gid automatic_address(const Mac& mac) noexcept {
  std::uint32_t hash = 2166136261U;  // FNV-1a
  for (const std::uint8_t byte : mac.bytes) hash = (hash ^ byte) * 16777619U;
  // RFC 3927, 2.1: not the first and last 256 addresses.
  return Gid::from_ipv4(0xa9fe0100U + hash % 0xfe00U);
}

}  // namespace fairlead::soft
