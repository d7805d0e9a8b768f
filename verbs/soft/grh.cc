#include "verbs/soft/grh.h"

#include <cstring>

#include "verbs/soft/wire/bytes.h"
#include "verbs/soft/wire/ip.h"

namespace fairlead::soft {
namespace {

constexpr std::size_t kIpv4At = kGrhBytes - kIpv4HeaderBytes;

}  // namespace

std::array<std::byte, kGrhBytes> make_grh(const RxPacket& raw, const Gid& destination) noexcept {
  std::array<std::byte, kGrhBytes> bytes{};
  IpHeader ip{raw.source, destination};
  if (raw.version == RoceVersion::kV1) {
    ip.traffic_class = raw.traffic_class;
    ip.hop_limit = raw.hop_limit;
    ip.flow_label = raw.flow_label;
    ip.payload_bytes = raw.bytes.size();
    encode_grh(ip, bytes.data());
    return bytes;
  }
  if (!destination.is_ipv4()) ip.traffic_class = raw.traffic_class;
  ip.ipv4_id = raw.ipv4_id_guess;
  ip.payload_bytes = kUdpHeaderBytes + raw.bytes.size();
  ip.encode(bytes.data() + bytes.size() - ip.bytes());
  return bytes;
}

std::optional<GrhEnds> read_grh(const ibv_grh& grh) noexcept {
  std::array<std::byte, kGrhBytes> bytes;
  static_assert(sizeof(grh) == sizeof(bytes));
  std::memcpy(bytes.data(), &grh, sizeof(bytes));
  const std::byte* ip = bytes.data() + kIpv4At;
  if (ip[0] == std::byte{0x45} && internet_checksum(internet_sum({ip, kIpv4HeaderBytes})) == 0) {
    return GrhEnds{Gid::from_ipv4(load32(ip + 12)), Gid::from_ipv4(load32(ip + 16)),
                   std::to_integer<std::uint8_t>(ip[1]), std::to_integer<std::uint8_t>(ip[8])};
  }
  const std::uint32_t first = load32(bytes.data());
  if (first >> 28 != 6) return std::nullopt;
  return GrhEnds{Gid::from_verbs(grh.sgid),
                 Gid::from_verbs(grh.dgid),
                 static_cast<std::uint8_t>(first >> 20),
                 grh.hop_limit,
                 first & 0xfffff,
                 grh.next_hdr == static_cast<std::uint8_t>(IpProtocol::kBth) ? RoceVersion::kV1 : RoceVersion::kV2};
}

}  // namespace fairlead::soft
