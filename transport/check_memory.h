// What every device refuses to register, in the same words.
#pragma once

#include <fmt/format.h>

#include <string_view>

#include "fairlead/status.h"
#include "transport/memory.h"

namespace fairlead::datapath {

/// ok for host memory and mapped files, the kinds that every device takes. Errors name the device and the remedy:
/// kInvalidArgument (no bytes), kUnimplemented (another kind).
[[nodiscard]] inline Status check_host_memory(const MemoryDescriptor& memory, std::string_view device) {
  if (memory.bytes.empty()) {
    return {Code::kInvalidArgument, fmt::format("cannot register 0 bytes with {}: give at least 1", device)};
  }
  if (const auto* huge = std::get_if<HugeMemory>(&memory.kind)) {
    return {Code::kUnimplemented,
            fmt::format("{} does not know memory on huge pages of {} bytes; register it as host memory", device,
                        huge->page_bytes)};
  }
  if (const auto* cuda = std::get_if<CudaMemory>(&memory.kind)) {
    return {Code::kUnimplemented, fmt::format("{} does not reach memory of CUDA device {}", device, cuda->ordinal)};
  }
  return {};
}

}  // namespace fairlead::datapath
