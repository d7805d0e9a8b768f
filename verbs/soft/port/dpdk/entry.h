// The entry point of libfairlead-dpdk.so, which softroce loads when a packet port over DPDK is asked for.
//
// The module is apart because DPDK's libraries, compile flags and start-up are nothing that a program should have
// unasked. It and its caller share only this file and FrameDevice. Threads: any; calls take turns.
#pragma once

#include <cstddef>
#include <cstdint>

#include "verbs/soft/port/frame/frame_device.h"

namespace fairlead::soft {

struct DpdkRequest {
  const char* device;       // DPDK's devargs: a name or PCI address, then the driver's options
  std::uint32_t mtu;        // wanted; a device may have less
  std::uint32_t megabytes;  // of packet memory for all ports of the process; the first port decides
  std::uint32_t queues;     // 1..kMostDpdkQueues
  bool zero_copy;           // payload is sent from where it lies
};

inline constexpr std::uint32_t kMostDpdkQueues = 16;

/// Fills `queues` with a device for each queue, to be deleted. Or false, with the reason in `why` (always terminated).
using OpenDpdkDevice = bool(const DpdkRequest* request, FrameDevice** queues, char* why,
                            std::size_t why_bytes) noexcept;

inline constexpr const char* kOpenDpdkDevice = "fairlead_dpdk_open_7";

}  // namespace fairlead::soft
