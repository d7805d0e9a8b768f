// The network interface that has an address of this host, and what it says of itself: by ioctl, since /sys shows the
// interfaces of the namespace that it was mounted in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fairlead::bench {

struct InterfaceFacts {
  std::string name;
  std::uint32_t mtu = 0;
  std::optional<std::uint64_t> megabits;  // per second, if it says
};

/// `address`: numeric, IPv4 or IPv6, without a port. nullopt: no interface here has it.
[[nodiscard]] std::optional<InterfaceFacts> interface_with(std::string_view address);

}  // namespace fairlead::bench
