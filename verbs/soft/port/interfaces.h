// The host's IPv4 and IPv6 addresses and what their interfaces carry.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "verbs/soft/wire/gid.h"

namespace fairlead::soft {

struct InterfaceAddress {
  Gid gid;
  std::string interface;
  std::uint32_t index = 0;  // ifindex
  std::uint32_t mtu = 0;    // of the interface, bytes
  bool loopback = false;
};

/// Addresses of interfaces that are up: IPv4, then IPv6, in the system's order. Nothing, with errno, where they cannot
/// be listed, for want of a descriptor, say.
[[nodiscard]] std::optional<std::vector<InterfaceAddress>> host_addresses();

/// What an interface carries, bytes of IP; 0: unknown, or there is no such interface.
[[nodiscard]] std::uint32_t interface_mtu(std::uint32_t index) noexcept;

/// The interface that carries `gid` (any of 127.0.0.0/8 is loopback's); index 0 where none that is up does. Nothing,
/// with errno, where that cannot be told.
[[nodiscard]] std::optional<InterfaceAddress> find_interface(const Gid& gid);
/// The same, with index 0 also where it cannot be told.
[[nodiscard]] InterfaceAddress interface_of(const Gid& gid);

/// Whether one carries it, and so whoever has it is on this host. Nothing, with errno, where that cannot be told. Waits
/// for nobody who makes or removes interfaces, but where it is none of a network's first addresses and the kernel lists
/// them under the lock of all that changes (rtnl, before Linux 6.9).
[[nodiscard]] std::optional<bool> is_of_host(const Gid& gid);
/// That it cannot be told, in words, and the remedy.
[[nodiscard]] std::string cannot_tell_host(const Gid& gid, int error);

/// The same number for an address in every program.
[[nodiscard]] std::uint64_t stable_hash(const Gid& gid) noexcept;

/// The largest path MTU (256..4096) whose RoCE packets fit an interface's MTU; 0 where none does.
[[nodiscard]] std::uint32_t largest_path_mtu(std::uint32_t interface_mtu, bool ipv6 = false) noexcept;

/// Who holds a UDP port at `gid` (or at all addresses), e.g. "process 4711 (ib_write_bw)"; empty where it cannot be
/// seen (the kernel). Of another user's process that cannot be looked into only the user: "a process of uid 1000".
[[nodiscard]] std::string udp_port_holder(const Gid& gid, std::uint16_t port);

}  // namespace fairlead::soft
