// An executor whose device is a GPU, by the CUDA driver, which is opened at run time (libcuda.so.1).
//
//   auto executors = fairlead::command::cuda_executors({.ordinal = 0, .memory_bytes = std::uint64_t{8} << 30});
//   auto service   = fairlead::command::Service::start(std::move(*engine), {.executors = *std::move(executors)});
//
// docs/commands.md says what runs when, and what is promised of failures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fairlead/command.h"
#include "fairlead/command_service.h"
#include "fairlead/export.h"
#include "fairlead/status.h"

namespace fairlead::inline v0::command {

/// An image that the server brings along: clients load its functions by name alone (Channel::load(handle, name)).
struct CudaModule {
  std::vector<std::byte> image;  // PTX, a cubin or a fatbin
  struct Function {
    std::string name;
    std::vector<Parameter> parameters;
  };
  std::vector<Function> functions;
};

struct CudaExecutorConfig {
  int ordinal = 0;                                      // of the device
  std::uint64_t memory_bytes = std::uint64_t{1} << 30;  // of a session: reserved and cleared when it begins
  std::size_t allocations = 4096;                       // of a session
  std::size_t functions = 1024;                         // of a session that are loaded
  std::uint32_t modules = 64;                           // of a session; 0: clients may load none
  std::size_t staging_bytes = std::size_t{16} << 20;    // pinned host memory of a session that copies go through: at
                                                        // least 4 MiB, of which a channel has up to a half
  /// No other session's executor is in this process (ServiceConfig::program): then the range of addresses of a session
  /// that asks for one is where its client wishes, if the driver can map memory so (cuMemMap). What is mapped all
  /// contexts of a process may use.
  bool own_process = false;
  std::vector<CudaModule> images{};
};

/// An executor for each session: a context of its own, a stream for each channel. Sessions are to run on threads of
/// their own (ServiceConfig::Where::kOwnThread): to load a module takes milliseconds. Errors: kInvalidArgument (a
/// setting out of range, no such device), kNotFound (no driver, or no device), kUnimplemented (older than CUDA 11.0).
[[nodiscard]] FAIRLEAD_EXPORT Result<ExecutorFactory> cuda_executors(CudaExecutorConfig config = {});

}  // namespace fairlead::inline v0::command
