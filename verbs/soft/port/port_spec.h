// The packet_io text: a port and its decorators, "udp,drop=0.01,reorder=0.01,seed=7,pcap=soft.pcap".
#pragma once

#include <string>
#include <string_view>

#include "fairlead/status.h"
#include "verbs/soft/port/fault_port.h"

namespace fairlead::soft {

struct PortSpec {
  FaultConfig faults;
  std::string pcap;  // capture file; empty: none
};

/// Errors name the word and the legal ones.
[[nodiscard]] Result<PortSpec> parse_port_spec(std::string_view text);

/// The port with the decorators that the specification asks for. Errors: a capture file that cannot be written.
[[nodiscard]] Result<std::unique_ptr<PacketPort>> decorate(std::unique_ptr<PacketPort> port, const PortSpec& spec);

}  // namespace fairlead::soft
