// Loopback addresses for tests that name them: of this process alone, so that no other test has one, had one just now,
// or still sends to it.
#pragma once

#include <unistd.h>

#include <cstdint>

namespace fairlead::test {

/// IPv4, host order; `host` from 1 to 254 tells those of one program apart.
inline std::uint32_t own_address(unsigned host) {
  const auto process = static_cast<std::uint32_t>(::getpid());
  return 127U << 24 | (64 + process / 256 % 128) << 16 | (process % 256) << 8 | host;
}

}  // namespace fairlead::test
