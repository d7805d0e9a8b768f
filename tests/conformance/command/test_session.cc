// The program that runs a session of the tests: test_session MEMORY SIGNALS [cuda]
#include <string>

#include "tests/conformance/cuda_device.h"
#include "tests/conformance/test_kernels.h"

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const fairlead::TestKernels kernels{std::string(argv[2])};
  const std::uint64_t memory = std::stoull(argv[1]);
  if (argc == 3) return fairlead::command::serve_session(kernels.executors(memory));
  fairlead::gpu::testing::CudaDouble cuda(fairlead::kCudaOfTests);
  cuda.install();
  const int code = fairlead::command::serve_session(fairlead::cuda_executors_of(cuda, kernels, memory, true));
  fairlead::gpu::replace_process_driver(nullptr);
  return cuda.violations().empty() ? code : 3;
}
