// A RoCE address: 16 bytes, network order; an IPv4 address a.b.c.d is ::ffff:a.b.c.d (IBTA annexes A16, A17).
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

namespace fairlead::soft {

struct Gid {
  std::array<std::uint8_t, 16> bytes{};

  [[nodiscard]] static Gid from_ipv4(std::uint32_t host_order) noexcept {
    Gid gid;
    gid.bytes[10] = gid.bytes[11] = 0xff;
    const std::uint32_t network_order = __builtin_bswap32(host_order);
    std::memcpy(&gid.bytes[12], &network_order, sizeof(network_order));
    return gid;
  }
  [[nodiscard]] static Gid from_verbs(const ibv_gid& raw) noexcept {
    Gid gid;
    std::memcpy(gid.bytes.data(), raw.raw, gid.bytes.size());
    return gid;
  }
  [[nodiscard]] ibv_gid to_verbs() const noexcept {
    ibv_gid raw;
    std::memcpy(raw.raw, bytes.data(), bytes.size());
    return raw;
  }
  [[nodiscard]] bool is_ipv4() const noexcept {
    static constexpr std::array<std::uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::memcmp(bytes.data(), kMapped.data(), kMapped.size()) == 0;
  }
  /// 127.0.0.0/8 or ::1.
  [[nodiscard]] bool is_loopback() const noexcept {
    static constexpr std::array<std::uint8_t, 16> kIpv6 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    return is_ipv4() ? ipv4() >> 24 == 127 : bytes == kIpv6;
  }
  [[nodiscard]] std::uint32_t ipv4() const noexcept {
    std::uint32_t network_order;
    std::memcpy(&network_order, &bytes[12], sizeof(network_order));
    return __builtin_bswap32(network_order);
  }
  [[nodiscard]] bool is_null() const noexcept { return *this == Gid{}; }
  [[nodiscard]] friend bool operator==(const Gid&, const Gid&) noexcept = default;
};

/// What stands between the Ethernet header and the BTH: a GRH (annex A16), or IP and UDP headers (annex A17).
enum class RoceVersion : std::uint8_t { kV1, kV2 };

/// "127.0.0.1" for a mapped address, else the IPv6 text.
[[nodiscard]] std::string to_string(const Gid& gid);

struct GidHash {
  std::size_t operator()(const Gid& gid) const noexcept {
    std::uint64_t halves[2];
    std::memcpy(halves, gid.bytes.data(), sizeof(halves));
    return std::hash<std::uint64_t>{}(halves[0] * 31 ^ halves[1]);
  }
};

}  // namespace fairlead::soft
