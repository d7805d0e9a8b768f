// The connections of this process to a memif server: memif's driver keeps its descriptors to itself.
//
// Servers are named as unix_name() does. Threads: as ControlGate::alone().
#pragma once

#include <string>
#include <vector>

namespace fairlead::dpdk {

/// Their descriptors.
[[nodiscard]] std::vector<int> calls_to(const std::string& server);

/// Whether this is one of them, by which nothing has come yet that was not taken.
[[nodiscard]] bool is_silent_call(int descriptor, const std::string& server) noexcept;

/// Has it stay open when its port is stopped, which it is before there was a link (../ungreeted.h).
void keep_call(int descriptor) noexcept;

}  // namespace fairlead::dpdk
