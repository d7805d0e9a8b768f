// Packet memory of one queue: a pool that hands out first what came back last, which is what the cache holds.
//
// DPDK's usual pools are rings that threads share, and those must not be shared by threads that may share a core: one
// that is preempted in the middle keeps the others waiting. Here one thread at a time uses a queue (its domain's lock),
// so its pool is a plain stack, needs no lock, and threads need not be registered with DPDK.
#pragma once

#include <rte_mbuf.h>

#include <cstdint>
#include <string>

namespace fairlead::dpdk {

/// A pool of `count` mbufs with `room` bytes each behind the headroom, and a private area; null with rte_errno set.
[[nodiscard]] rte_mempool* create_mbuf_stack(const std::string& name, unsigned count, std::uint16_t room,
                                             std::uint16_t private_bytes = 0);

}  // namespace fairlead::dpdk
