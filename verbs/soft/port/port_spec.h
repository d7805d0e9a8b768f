// The packet_io text: a port and its decorators, "udp,drop=0.01,reorder=0.01,seed=7,pcap=soft.pcap" or
// "memif,role=server,socket=fairlead,ip=10.0.0.1/24" or "dpdk:net_memif0,role=server,socket=fairlead,ip=10.0.0.1/24".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fairlead/status.h"
#include "verbs/soft/port/frame/frame_port.h"
#include "verbs/soft/port/memif/link.h"
#include "verbs/soft/port/references.h"
#include "verbs/soft/port/wrap/fault_port.h"

namespace fairlead::soft {

/// A port that owns its wire, over DPDK.
struct DpdkSpec {
  std::string devargs;  // the device and what is none of our words
  FramePortConfig addresses;
  std::uint32_t megabytes = 256;
  std::uint32_t queues = 1;  // and lanes
  bool zero_copy = false;    // payload is sent from where it lies
};

/// A port that owns its wire, over shared memory with another process.
struct MemifSpec {
  memif::LinkSettings link;
  FramePortConfig addresses;
};

struct PortSpec {
  std::optional<DpdkSpec> dpdk = {};
  std::optional<MemifSpec> memif = {};  // neither: sockets
  /// The addresses of a port that owns its wire; null: it does not.
  [[nodiscard]] FramePortConfig* addresses() noexcept {
    if (dpdk) return &dpdk->addresses;
    return memif ? &memif->addresses : nullptr;
  }
  [[nodiscard]] bool owns_wire() const noexcept { return dpdk || memif; }
  std::uint32_t receive_buffer = 0;  // sockets: bytes that are asked for; 0: as much as is of use
  bool local_memory = true;          // sockets: packets to other devices of this host cross memory where they can
  std::uint32_t least_referred = kLeastReferred;  // and so long messages by reference; 0: none
  FaultConfig faults = {};
  std::string pcap = {};  // capture file; empty: none
};

/// Errors name the word and the legal ones.
[[nodiscard]] Result<PortSpec> parse_port_spec(std::string_view text);

/// The port with the decorators that the specification asks for. Errors: a capture file that cannot be written.
[[nodiscard]] Result<std::unique_ptr<PacketPort>> decorate(std::unique_ptr<PacketPort> port, const PortSpec& spec);

/// The port that owns its wire, by its lanes. Errors: as of memif::Link::open() or open_dpdk_device(), and a device
/// that is too small for any path MTU.
[[nodiscard]] Result<std::vector<std::unique_ptr<PacketPort>>> open_frame_ports(const PortSpec& spec,
                                                                                const Clock& clock);

}  // namespace fairlead::soft
