// DPDK's environment (EAL): started once in a process, by the first port, or by the application before.
//
// As we start it: without huge pages unless some are free and mounted, no PCI unless a PCI device was named first, no
// telemetry, a runtime folder per process, no thread of the application pinned or made an lcore. Threads: any.
#pragma once

#include <string>

namespace fairlead::dpdk {

struct EalRequest {
  std::string pci_address;  // empty: a virtual device
  unsigned megabytes = 0;
};

/// False with the reason in `why`.
bool start_eal(const EalRequest& request, std::string& why);

/// What DPDK said last, for an error's text; empty where the application started it, whose log it is then.
[[nodiscard]] std::string recent_log();
/// From here on recent_log() begins.
void forget_log();

}  // namespace fairlead::dpdk
