#include "verbs/soft/wire/ethernet.h"

#include <fmt/format.h>

#include "verbs/soft/wire/bytes.h"

namespace fairlead::soft {
namespace {

constexpr std::uint8_t kUniversal = 2;  // the bit that tells burnt-in from given addresses, which an EUI-64 turns over

}  // namespace

Gid link_local_gid(const Mac& mac) noexcept {
  const auto& m = mac.bytes;
  const auto first = static_cast<std::uint8_t>(m[0] ^ kUniversal);
  return {{0xfe, 0x80, 0, 0, 0, 0, 0, 0, first, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]}};
}

std::optional<Mac> station_of(const Gid& gid) noexcept {
  const auto& g = gid.bytes;
  const Mac mac{{static_cast<std::uint8_t>(g[8] ^ kUniversal), g[9], g[10], g[13], g[14], g[15]}};
  if (!mac.is_station() || link_local_gid(mac) != gid) return std::nullopt;
  return mac;
}

std::string to_string(const Mac& mac) { return fmt::format("{:02x}", fmt::join(mac.bytes, ":")); }

void EthernetHeader::encode(std::byte* to) const noexcept {
  std::memcpy(to, destination.bytes.data(), Mac::kBytes);
  std::memcpy(to + Mac::kBytes, source.bytes.data(), Mac::kBytes);
  store16(to + 2 * Mac::kBytes, static_cast<std::uint16_t>(type));
}

EthernetHeader EthernetHeader::decode(const std::byte* from) noexcept {
  EthernetHeader header;
  std::memcpy(header.destination.bytes.data(), from, Mac::kBytes);
  std::memcpy(header.source.bytes.data(), from + Mac::kBytes, Mac::kBytes);
  header.type = static_cast<EtherType>(load16(from + 2 * Mac::kBytes));
  return header;
}

}  // namespace fairlead::soft
