// The softroce devices that are open now, in this process and in the user's others, with what they have counted.
//
// Threads: any, at any time.
#pragma once

#include <vector>

#include "fairlead/softroce.h"

namespace fairlead::soft {

using LiveDevice = SoftroceDevice;

/// Every open device of this user, by process and address; 0 stands for a process of another PID namespace, whose
/// number says nothing here. Files that dead processes left are removed.
[[nodiscard]] std::vector<LiveDevice> live_devices();

}  // namespace fairlead::soft
