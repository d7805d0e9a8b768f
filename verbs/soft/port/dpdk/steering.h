// Which queue of a NIC a packet arrives at: the one that the lowest bits of its UDP source port name (../lanes.h).
//
// A hint, which spares lanes from handing packets over. Threads: one at a time for each port.
#pragma once

#include <cstdint>

namespace fairlead::dpdk {

/// Gives the started port the rules that its driver takes (rte_flow). Without any, packets are spread by RSS, or come
/// as their sender chose.
void steer_by_source_port(std::uint16_t port, std::uint16_t queues) noexcept;

}  // namespace fairlead::dpdk
