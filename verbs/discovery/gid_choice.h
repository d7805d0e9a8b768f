// Which GID of a port carries a path, and in words why each other one does not.
//
// Pure: facts in, verdicts out; verbs/device_list gathers the facts. The rules, first match wins:
//   the port is active and its link layer is Ethernet;
//   a configured index is taken, or refused with the reason;
//   the entry is RoCE v2, an interface has its address (a link-local one of none goes nowhere) and carries RoCE at all;
//   a peer on this host wants a loopback GID, else our address toward it, else any;
//   a remote peer wants our address toward it, else one of the same interface and family;
//   IPv4-mapped before global IPv6 before link-local, then the lowest index.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "verbs/discovery/address.h"

namespace fairlead::verbs {

/// One entry of a GID table.
struct GidFacts {
  int index = 0;
  Address address;
  std::uint32_t type = 0;       // ibv_gid_type
  std::uint32_t interface = 0;  // index of its network interface; 0: unknown
  std::uint32_t mtu = 0;        // of that interface, bytes of IP; 0: unknown
};

/// One port of a device, as the device reports it.
struct PortFacts {
  std::string device;
  int port = 1;
  ibv_transport_type transport = IBV_TRANSPORT_IB;
  ibv_port_state state = IBV_PORT_ACTIVE;
  std::uint8_t link_layer = IBV_LINK_LAYER_ETHERNET;
  std::uint32_t active_mtu = 1024;  // bytes
  std::uint64_t bits_per_second = 0;
  std::uint32_t max_message_bytes = 0;  // max_msg_sz
  std::vector<GidFacts> gids;           // without the empty entries
};

struct GidVerdict {
  GidFacts gid;
  bool usable = false;  // it would do
  bool chosen = false;
  std::string reason;
};

struct GidChoice {
  std::optional<GidFacts> chosen;
  std::vector<GidVerdict> verdicts;  // in order of index
  std::string reason;                // why chosen, or why there is nothing to choose
};

/// `route`: null when no peer is known yet (listing). `configured_index`: -1 to choose.
[[nodiscard]] GidChoice choose_gid(const PortFacts& port, const Route* route, int configured_index);

/// The largest path MTU by which this end can use `gid` (toward a peer, if there is a route): what the port, the GID's
/// interface and the route all carry, and `configured` (0: the largest) allows. 0: none fits. The other end has a say
/// too.
[[nodiscard]] std::uint32_t path_mtu(const PortFacts& port, const GidFacts& gid, const Route* route,
                                     std::uint32_t configured = 0) noexcept;

/// "IPv4-mapped", "global IPv6" or "link-local".
[[nodiscard]] const char* family_name(const Address& address) noexcept;

}  // namespace fairlead::verbs
