// Ethernet: addresses of stations and the header of a frame, for ports that own the wire.
//
// Values are in host byte order. Source: IEEE 802.3, 3.2; RFC 2464, 7 (multicast over IPv6), RFC 1112, 6.4.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "verbs/soft/wire/gid.h"

namespace fairlead::soft {

struct Mac {
  static constexpr std::size_t kBytes = 6;
  std::array<std::uint8_t, kBytes> bytes{};

  [[nodiscard]] static Mac broadcast() noexcept { return {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}; }
  /// Of the IPv6 multicast group.
  [[nodiscard]] static Mac of_group(const Gid& group) noexcept {
    return {{0x33, 0x33, group.bytes[12], group.bytes[13], group.bytes[14], group.bytes[15]}};
  }
  /// Of broadcast and multicast.
  [[nodiscard]] bool is_group() const noexcept { return (bytes[0] & 1) != 0; }
  /// An address that one station may have.
  [[nodiscard]] bool is_station() const noexcept { return !is_group() && *this != Mac{}; }
  [[nodiscard]] friend bool operator==(const Mac&, const Mac&) noexcept = default;
};

/// The link-local GID that is made of a station's address (RFC 4291, appendix A: modified EUI-64).
[[nodiscard]] Gid link_local_gid(const Mac& mac) noexcept;
/// The station that such a GID was made of; nothing where it is another's.
[[nodiscard]] std::optional<Mac> station_of(const Gid& gid) noexcept;

/// "02:00:00:00:00:01".
[[nodiscard]] std::string to_string(const Mac& mac);

enum class EtherType : std::uint16_t { kIpv4 = 0x0800, kArp = 0x0806, kIpv6 = 0x86dd, kRoce = 0x8915 };

struct EthernetHeader {
  static constexpr std::size_t kBytes = 14;
  Mac destination;
  Mac source;
  EtherType type{};

  void encode(std::byte* to) const noexcept;
  [[nodiscard]] static EthernetHeader decode(const std::byte* from) noexcept;
};

/// A frame shorter than this is padded with zeros; without the checksum behind it.
inline constexpr std::size_t kLeastFrame = 60;

}  // namespace fairlead::soft
