// The program that runs a session of the tests: test_session MEMORY SIGNALS host|cuda DEVICES
#include <string>
#include <vector>

#include "tests/conformance/cuda_device.h"
#include "tests/conformance/test_kernels.h"

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const fairlead::TestKernels kernels{std::string(argv[2])};
  const std::uint64_t memory = std::stoull(argv[1]);
  const int count = std::stoi(argv[4]);
  std::vector<fairlead::command::ServedDevice> devices;
  if (argv[3] == std::string("host")) {
    for (int i = 0; i < count; ++i) devices.push_back({"host", kernels.executors(memory)});
    return fairlead::command::serve_session(devices);
  }
  fairlead::CudaOfTests cuda;
  for (int i = 0; i < count; ++i) devices.push_back({"cuda", cuda.executors(kernels, memory, true, i)});
  const int code = fairlead::command::serve_session(devices);
  cuda.let_go();
  const auto* const of_tests = cuda.find_double();
  return of_tests == nullptr || of_tests->violations().empty() ? code : 3;
}
