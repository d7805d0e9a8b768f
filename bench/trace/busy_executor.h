// The device of a replayed trace: the host executor with one function more, "busy", that takes as long as it is told.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "fairlead/command_service.h"

namespace fairlead::bench {

/// Its parameters are the ns that the device is busy (64 bits), and whatever is behind that, which it does not read. It
/// says that it is short, as a launch at a GPU is, whatever the GPU takes: nothing is said about those before it first.
inline constexpr std::string_view kBusy = "busy";

[[nodiscard]] command::ExecutorFactory busy_executors();

/// Parameters of "busy", so many bytes; at least 8. `parameters` is the caller's to use again.
[[nodiscard]] std::span<const std::byte> busy_parameters(std::vector<std::byte>& parameters, std::uint64_t ns,
                                                         std::uint64_t bytes);

/// Occupies this core until then.
void busy_until(std::chrono::steady_clock::time_point end) noexcept;

}  // namespace fairlead::bench
