// What a client sees to be wrong with a launch. A pure function.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "fairlead/command.h"
#include "fairlead/status.h"

namespace fairlead::datapath::command {

/// ok, or why nothing can be launched so, whichever its function.
[[nodiscard]] inline Status check_extents(const fairlead::command::Launch& launch, std::size_t parameters,
                                          const fairlead::command::Limits& limits) {
  const auto wrong = [](std::string text) { return Status(Code::kInvalidArgument, std::move(text)); };
  const fairlead::command::Extent &grid = launch.grid, &block = launch.block;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > limits.grid.x || grid.y > limits.grid.y ||
      grid.z > limits.grid.z) {
    return wrong(fmt::format("a grid of {} x {} x {} blocks; each is 1 to {}, {}, {}", grid.x, grid.y, grid.z,
                             limits.grid.x, limits.grid.y, limits.grid.z));
  }
  const std::uint32_t most = limits.block_threads;
  if (!fairlead::command::fits({{}, {}, block}, {1, 1, 1}, most, 0)) {
    return wrong(fmt::format("a block of {} x {} x {} threads; it has 1 to {}", block.x, block.y, block.z, most));
  }
  if (launch.shared_bytes > limits.shared_bytes) {
    return wrong(fmt::format("{} bytes of shared memory; there are {}", launch.shared_bytes, limits.shared_bytes));
  }
  if (parameters > limits.parameter_bytes) {
    return wrong(fmt::format("{} bytes of parameters; a launch has at most {}", parameters, limits.parameter_bytes));
  }
  return {};
}

/// Whether check_launch() is ok.
[[nodiscard]] inline bool is_launch(const fairlead::command::Launch& launch, std::size_t parameters,
                                    const fairlead::command::Limits& limits) noexcept {
  return launch.function.bits != 0 && parameters <= limits.parameter_bytes &&
         fairlead::command::fits(launch, limits.grid, limits.block_threads, limits.shared_bytes);
}

/// ok, or why there is no such launch.
[[nodiscard]] inline Status check_launch(const fairlead::command::Launch& launch, std::size_t parameters,
                                         const fairlead::command::Limits& limits) {
  if (launch.function.bits == 0) return {Code::kInvalidArgument, "the launch names no function"};
  return check_extents(launch, parameters, limits);
}

}  // namespace fairlead::datapath::command
