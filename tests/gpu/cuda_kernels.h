// Kernels of the host executor as kernels of the double's: the same functions, the same results.
#pragma once

#include <string>
#include <vector>

#include "fairlead/cuda_executor.h"
#include "fairlead/host_executor.h"
#include "tests/gpu/cuda_double.h"

namespace fairlead::gpu::testing {

/// What the image is, and what its functions take. A launch of one that reaches where its context has no memory is a
/// fault, and so is one whose function fails. `name`: images of different names are different.
command::CudaModule add_kernels(CudaDouble& cuda, std::vector<command::HostKernel> kernels,
                                const std::string& name = "kernels");

}  // namespace fairlead::gpu::testing
