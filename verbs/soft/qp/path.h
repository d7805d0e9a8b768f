// The way to a peer: what an address vector (ibv_ah_attr) resolves to.
//
// A value; what it points to lives as long as the device. Threads: under the domain's lock.
// Source: IBTA annexes A16 and A17 (addressing of RoCE v1 and v2).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>

#include "verbs/soft/flow_control/peer.h"
#include "verbs/soft/port/tx_batch.h"

namespace fairlead::soft {

class DeviceBase;
struct PortSlot;

struct Path {
  PortSlot* port = nullptr;
  PeerHold peer;
  Route route;
  std::uint32_t max_mtu = 0;  // path MTU that it can carry
};

/// Binds the port that the vector is resolved with, without the domain's lock: it may wait for other processes. 0, or
/// an errno and the reason.
[[nodiscard]] int prepare_path(DeviceBase& device, const ibv_ah_attr& vector, std::string& why);

/// The same of the whole path, once it is prepared. `spread` and the peer's queue pair, 0 for any, select the UDP
/// source port where the vector has no flow label.
[[nodiscard]] int resolve_path(DeviceBase& device, const ibv_ah_attr& vector, std::uint64_t spread,
                               std::uint32_t peer_qpn, Path& path, std::string& why);

}  // namespace fairlead::soft
