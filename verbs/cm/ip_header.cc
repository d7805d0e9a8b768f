#include "verbs/cm/ip_header.h"

#include <cstring>

#include "verbs/soft/wire/bytes.h"

namespace fairlead::cm {
namespace {

constexpr unsigned kVersion = 0;  // major and minor

// An IPv4 address stands in the last four of its sixteen bytes.
void put_address(std::byte* to, const soft::Gid& address, bool ipv6) noexcept {
  std::memset(to, 0, 16);
  const std::size_t skip = ipv6 ? 0 : 12;
  std::memcpy(to + skip, address.bytes.data() + skip, 16 - skip);
}

soft::Gid get_address(const std::byte* from, bool ipv6) noexcept {
  if (!ipv6) return soft::Gid::from_ipv4(soft::load32(from + 12));
  soft::Gid gid;
  std::memcpy(gid.bytes.data(), from, gid.bytes.size());
  return gid;
}

}  // namespace

void IpHeader::encode(std::byte* to) const noexcept {
  to[0] = static_cast<std::byte>(kVersion);
  to[1] = static_cast<std::byte>((ipv6 ? 6U : 4U) << 4);
  soft::store16(to + 2, source_port);
  put_address(to + 4, source, ipv6);
  put_address(to + 20, destination, ipv6);
}

std::optional<IpHeader> IpHeader::decode(std::span<const std::byte, kBytes> from) noexcept {
  const auto ip_version = static_cast<unsigned>(from[1]) >> 4;
  if (static_cast<unsigned>(from[0]) >> 4 != kVersion || (ip_version != 4 && ip_version != 6)) return std::nullopt;
  IpHeader header;
  header.ipv6 = ip_version == 6;
  header.source_port = soft::load16(&from[2]);
  header.source = get_address(&from[4], header.ipv6);
  header.destination = get_address(&from[20], header.ipv6);
  return header;
}

}  // namespace fairlead::cm
