// The double of the CUDA driver as a device of tests: executors with the kernels of tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>

#include "fairlead/cuda_executor.h"
#include "tests/conformance/test_kernels.h"
#include "tests/gpu/cuda_double.h"
#include "tests/gpu/cuda_kernels.h"

namespace fairlead {

/// Streams beside each other in an order that chance decides.
inline constexpr gpu::testing::CudaDouble::Features kCudaOfTests{.devices = 3, .shuffle = 7};

/// Executors on it, counted. `cuda` is installed. `own_process`: each session is the only one of its process.
inline command::ExecutorFactory cuda_executors_of(gpu::testing::CudaDouble& cuda, const TestKernels& kernels,
                                                  std::uint64_t memory, bool own_process = false, int ordinal = 0) {
  command::CudaExecutorConfig config;
  config.ordinal = ordinal;
  config.own_process = own_process;
  config.memory_bytes = memory;
  config.staging_bytes = std::size_t{4} << 20;
  config.images.push_back(gpu::testing::add_kernels(cuda, kernels.kernels()));
  Result<command::ExecutorFactory> made = command::cuda_executors(std::move(config));
  if (!made) throw std::runtime_error(made.error().to_string());
  return kernels.counted(*std::move(made));
}

}  // namespace fairlead
