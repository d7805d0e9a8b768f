// What an executor refuses of a launch before it looks at anything else.
#pragma once

#include <cstdint>

#include "fairlead/command_service.h"

namespace fairlead::gpu {

/// Whether blocks, threads and shared memory are within the limits.
[[nodiscard]] inline bool fits(const command::Launch& launch, const command::ExecutorLimits& most) noexcept {
  return command::fits(launch, most.grid, most.block_threads, most.shared_bytes);
}

}  // namespace fairlead::gpu
