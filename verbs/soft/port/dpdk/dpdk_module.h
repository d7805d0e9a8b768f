// Finds and loads libfairlead-dpdk.so, and opens devices through it.
//
// It is looked for in FAIRLEAD_MODULES (folders, separated by colons) if that is set; else beside what softroce is
// linked into, in ../lib of that, in the folder `fairlead` of each, and where it was to be installed. Threads: any.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fairlead/status.h"
#include "verbs/soft/port/frame/frame_device.h"

namespace fairlead::soft {

/// The queues of a device. `devargs` as DPDK has them: a device, then its driver's options. Errors: no module (with the
/// remedy and where it was looked for), and whatever keeps the device from being opened.
[[nodiscard]] Result<std::vector<std::unique_ptr<FrameDevice>>> open_dpdk_device(const std::string& devargs,
                                                                                 std::uint32_t megabytes,
                                                                                 std::uint32_t queues = 1,
                                                                                 bool zero_copy = false);

}  // namespace fairlead::soft
