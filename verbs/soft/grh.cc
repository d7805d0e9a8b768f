#include "verbs/soft/grh.h"

#include <cstring>

#include "verbs/soft/wire/bytes.h"

namespace fairlead::soft {
namespace {

constexpr std::size_t kIpv4Bytes = 20;
constexpr std::size_t kIpv4At = kGrhBytes - kIpv4Bytes;
constexpr std::size_t kUdpBytes = 8;
constexpr std::uint16_t kDontFragment = 0x4000;
constexpr unsigned kUdpProtocol = 17;
constexpr unsigned kHopLimit = 64;

// RFC 1071. 0 over a header whose checksum is right.
std::uint16_t checksum(const std::byte* header) noexcept {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < kIpv4Bytes; i += 2) sum += load16(header + i);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

}  // namespace

std::array<std::byte, kGrhBytes> make_grh(const RxPacket& raw, const Gid& destination) noexcept {
  std::array<std::byte, kGrhBytes> bytes{};
  if (!destination.is_ipv4()) {
    store32(bytes.data(), 6U << 28 | std::uint32_t{raw.traffic_class} << 20);
    store16(bytes.data() + 4, static_cast<std::uint16_t>(kUdpBytes + raw.bytes.size()));
    bytes[6] = std::byte{kUdpProtocol};
    bytes[7] = std::byte{kHopLimit};
    std::memcpy(bytes.data() + 8, raw.source.bytes.data(), raw.source.bytes.size());
    std::memcpy(bytes.data() + 24, destination.bytes.data(), destination.bytes.size());
    return bytes;
  }
  std::byte* ip = bytes.data() + kIpv4At;
  ip[0] = std::byte{0x45};
  store16(ip + 2, static_cast<std::uint16_t>(kIpv4Bytes + kUdpBytes + raw.bytes.size()));
  store16(ip + 4, raw.ipv4_id_guess);
  store16(ip + 6, kDontFragment);
  ip[8] = std::byte{kHopLimit};
  ip[9] = std::byte{kUdpProtocol};
  store32(ip + 12, raw.source.ipv4());
  store32(ip + 16, destination.ipv4());
  store16(ip + 10, checksum(ip));
  return bytes;
}

std::optional<GrhEnds> read_grh(const ibv_grh& grh) noexcept {
  std::array<std::byte, kGrhBytes> bytes;
  static_assert(sizeof(grh) == sizeof(bytes));
  std::memcpy(bytes.data(), &grh, sizeof(bytes));
  const std::byte* ip = bytes.data() + kIpv4At;
  if (ip[0] == std::byte{0x45} && checksum(ip) == 0) {
    return GrhEnds{Gid::from_ipv4(load32(ip + 12)), Gid::from_ipv4(load32(ip + 16)),
                   std::to_integer<std::uint8_t>(ip[1]), std::to_integer<std::uint8_t>(ip[8]), 0};
  }
  const std::uint32_t first = load32(bytes.data());
  if (first >> 28 != 6) return std::nullopt;
  return GrhEnds{Gid::from_verbs(grh.sgid), Gid::from_verbs(grh.dgid), static_cast<std::uint8_t>(first >> 20),
                 grh.hop_limit, first & 0xfffff};
}

}  // namespace fairlead::soft
