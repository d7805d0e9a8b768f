// The RDMA IP CM header: the first 36 bytes of a request's private data, which name the connection's IP addresses.
//
// Source: IBTA annex A11 (RDMA IP CM service).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "verbs/soft/wire/gid.h"

namespace fairlead::cm {

struct IpHeader {
  static constexpr std::size_t kBytes = 36;
  bool ipv6 = false;
  std::uint16_t source_port = 0;
  soft::Gid source;  // an IPv4 address as its mapped GID
  soft::Gid destination;

  void encode(std::byte* to) const noexcept;
  /// Nothing where the version is unknown.
  [[nodiscard]] static std::optional<IpHeader> decode(std::span<const std::byte, kBytes> from) noexcept;
};

/// The service of a port in a port space (RDMA_PS_TCP and the like).
[[nodiscard]] constexpr std::uint64_t service_id(std::uint16_t port_space, std::uint16_t port) noexcept {
  return std::uint64_t{port_space} << 16 | port;
}

}  // namespace fairlead::cm
