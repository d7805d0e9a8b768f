// What the parameters of host kernels are on a device, whichever that is.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fairlead/cuda_executor.h"
#include "fairlead/host_executor.h"

namespace fairlead::gpu::testing {

/// There; a pointer is an address.
inline std::uint32_t bytes_of(command::ParameterKind kind) {
  return kind == command::ParameterKind::kU32 || kind == command::ParameterKind::kF32 ? 4 : 8;
}

/// What functions of these kernels are declared to take.
inline std::vector<command::CudaModule::Function> functions_of(std::span<const command::HostKernel> kernels) {
  std::vector<command::CudaModule::Function> all;
  for (const command::HostKernel& kernel : kernels) {
    command::CudaModule::Function& function = all.emplace_back(kernel.name);
    for (const command::HostKernel::Parameter& each : kernel.parameters) {
      const std::uint32_t bytes = bytes_of(each.kind);
      function.parameters.push_back(each.kind == command::ParameterKind::kPointer
                                        ? command::Parameter{sizeof(command::Pointer), alignof(command::Pointer), true}
                                        : command::Parameter{bytes, static_cast<std::uint16_t>(bytes)});
    }
  }
  return all;
}

}  // namespace fairlead::gpu::testing
