#include "verbs/soft/wire/grh.h"

#include <array>
#include <cstddef>
#include <cstring>

#include "verbs/soft/wire/bytes.h"
#include "verbs/soft/wire/ip.h"

namespace fairlead::soft {
namespace {

constexpr std::size_t kIpv4At = kGrhBytes - kIpv4HeaderBytes;

}  // namespace

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
