// What an executor refuses of a launch before it looks at anything else.
#pragma once

#include "fairlead/command_service.h"

namespace fairlead::gpu {

/// Whether blocks, threads and shared memory are within the limits.
[[nodiscard]] inline bool fits(const command::Launch& launch, const command::ExecutorLimits& most) noexcept {
  const command::Extent &grid = launch.grid, &block = launch.block;
  const bool threads = block.x != 0 && block.y != 0 && block.z != 0 && block.x <= most.block_threads &&
                       block.y <= most.block_threads / block.x && block.z <= most.block_threads / block.x / block.y;
  const bool blocks = grid.x != 0 && grid.y != 0 && grid.z != 0 && grid.x <= most.grid.x && grid.y <= most.grid.y &&
                      grid.z <= most.grid.z;
  return threads && blocks && launch.shared_bytes <= most.shared_bytes;
}

}  // namespace fairlead::gpu
