// The packet_io text: a port and its decorators, "udp,drop=0.01,reorder=0.01,seed=7,pcap=soft.pcap" or
// "dpdk:net_memif0,role=server,socket=fairlead,ip=10.0.0.1/24".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fairlead/status.h"
#include "verbs/soft/port/frame/frame_port.h"
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

struct PortSpec {
  std::optional<DpdkSpec> dpdk = {};  // else sockets
  FaultConfig faults = {};
  std::string pcap = {};  // capture file; empty: none
};

/// Errors name the word and the legal ones.
[[nodiscard]] Result<PortSpec> parse_port_spec(std::string_view text);

/// The port with the decorators that the specification asks for. Errors: a capture file that cannot be written.
[[nodiscard]] Result<std::unique_ptr<PacketPort>> decorate(std::unique_ptr<PacketPort> port, const PortSpec& spec);

/// The port over DPDK, by its lanes. Errors: as open_dpdk_device's, and a device that is too small for any path MTU.
[[nodiscard]] Result<std::vector<std::unique_ptr<PacketPort>>> open_dpdk_port(const DpdkSpec& spec, const Clock& clock);

}  // namespace fairlead::soft
