// What is particular to DPDK's drivers: options that RoCE's large frames need, sizes that they do not report, packages.
//
// Pure, but for a look at the interface or the socket that a driver is bound to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fairlead::dpdk {

struct DriverPlan {
  std::string device;  // devargs with the options that were missing
  std::string name;    // "net_memif0", "0000:03:00.0"
  std::string driver;  // "net_memif"; empty for a PCI device, whose driver DPDK finds
  std::uint16_t queues = 1;
  std::uint32_t mtu = 0;            // where the driver's own answer is wrong or missing; else 0
  std::uint32_t room = 0;           // bytes of a packet buffer
  std::uint32_t receive_slots = 0;  // of a ring that is not sized by ethdev's descriptors
  const char* needs = "";           // what a refusal may be due to
  std::string interface;            // of the kernel's, that the driver is bound to; empty: none
  std::string link_needs = "a cable, and a port at its other end";
  bool memif = false;
  bool copies = false;         // out of a packet's memory, before a burst returns
  bool zero_copy = false;      // payload is to be sent from where it lies
  bool reaches_memory = true;  // that is not DPDK's
  bool waits = false;          // a wire of shared memory: a full ring means later, not lost
  bool memif_client = false;   // connects when it is started, and not again
  std::string socket;          // of a memif: "@NAME" in the abstract namespace, else a path
};

/// The plan for frames of `mtu` bytes behind the Ethernet header; nothing with the reason in `why`.
[[nodiscard]] std::optional<DriverPlan> plan_driver(std::string_view devargs, std::uint32_t mtu, std::uint16_t queues,
                                                    std::string& why);

/// Debian's package of a virtual device's driver.
[[nodiscard]] std::string package_of(std::string_view driver);
/// Whether the driver's library is loaded.
[[nodiscard]] bool driver_loaded(std::string_view driver);

}  // namespace fairlead::dpdk
