// What an executor refuses of a launch before it looks at anything else.
#pragma once

#include <cstdint>

#include "fairlead/command_service.h"

namespace fairlead::gpu {

/// Whether blocks, threads and shared memory are within the limits.
[[nodiscard]] inline bool fits(const command::Launch& launch, const command::ExecutorLimits& most) noexcept {
  const command::Extent &grid = launch.grid, &block = launch.block;
  const std::uint64_t plane = std::uint64_t{block.x} * block.y;
  const bool threads = plane != 0 && block.z != 0 && plane <= most.block_threads && block.z <= most.block_threads &&
                       plane * block.z <= most.block_threads;
  const bool blocks = grid.x != 0 && grid.y != 0 && grid.z != 0 && grid.x <= most.grid.x && grid.y <= most.grid.y &&
                      grid.z <= most.grid.z;
  return threads && blocks && launch.shared_bytes <= most.shared_bytes;
}

}  // namespace fairlead::gpu
