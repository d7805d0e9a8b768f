// What ss(8) writes of an address of AF_UNIX: "@NAME" in the abstract namespace, else a path.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <string>

namespace fairlead::dpdk {

/// As getsockname() or getpeername() left it; empty where it is of another family, or has no name.
inline std::string unix_name(const sockaddr_un& address, socklen_t length) {
  constexpr std::size_t kHead = offsetof(sockaddr_un, sun_path);
  if (address.sun_family != AF_UNIX || length <= kHead) return {};
  if (address.sun_path[0] != '\0') return address.sun_path;
  return "@" + std::string(address.sun_path + 1, std::min<std::size_t>(length, sizeof address) - kHead - 1);
}

}  // namespace fairlead::dpdk
