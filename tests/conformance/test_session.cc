// The program that runs a session of the tests: test_session MEMORY SIGNALS
#include <string>

#include "tests/conformance/test_kernels.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  return fairlead::command::serve_session(fairlead::TestKernels(argv[2]).executors(std::stoull(argv[1])));
}
