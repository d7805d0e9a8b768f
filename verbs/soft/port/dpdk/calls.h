// What connections to a memif server this process has: memif's driver keeps its descriptors to itself.
//
// Servers are named as unix_name() does. Threads: as ControlGate::alone().
#pragma once

#include <string>

namespace fairlead::dpdk {

/// Whether there is one by which nothing has come.
[[nodiscard]] bool calls(const std::string& server) noexcept;

/// Before the port is stopped that has such a one (../ungreeted.h), as it has no link.
void keep_calls(const std::string& server) noexcept;

}  // namespace fairlead::dpdk
