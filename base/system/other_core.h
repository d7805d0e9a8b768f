// From one core to another that is as near to the memory at work.
#pragma once

#include "base/system/system_files.h"

namespace fairlead {

/// The calling thread goes on on another CPU, of those that it may use and that share the last cache of its own; which
/// it may use stays as it was. False, and nothing is done: there is none, or the system does not say or refuses.
/// Takes some 30 us. Threads: any.
[[nodiscard]] bool leave_core(const SystemFiles& files = SystemFiles{}) noexcept;

}  // namespace fairlead
