// The devices that this process has open, so that a second user can share one: its address can be bound only once.
//
// fork() waits until nobody is at work in any of them, so that a child finds whole devices and free locks: it may close
// them (what they own is not its, see port/private_fd.h) and open its own. Threads: any.
#pragma once

#include <functional>

namespace fairlead::soft {

class Device;

namespace open_devices {

void add(Device& device);
/// One more user of the first open device for which `wanted` answers true; null where there is none.
[[nodiscard]] Device* share(const std::function<bool(Device&)>& wanted);
/// One user fewer. True when others are left; else the caller's is the last, and forget() is next.
[[nodiscard]] bool leave(Device& device);
void forget(Device& device);

}  // namespace open_devices

}  // namespace fairlead::soft
