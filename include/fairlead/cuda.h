// Memory of CUDA devices: registered by its device pointer, then used as any other Memory.
//
//   fairlead::Result<fairlead::Memory> weights = engine.register_memory({pointer, bytes}, fairlead::CudaOptions{});
//
// The driver (libcuda.so.1) is opened when first needed: nothing here needs CUDA to build. docs/gpu_memory.md says how
// bytes cross, and what the caller sees to.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "fairlead/export.h"
#include "fairlead/memory.h"
#include "fairlead/status.h"

namespace fairlead::inline v0 {

/// How Engine::register_memory takes memory that CUDA knows.
struct CudaOptions {
  static constexpr int kAnyDevice = -1;
  int device = kAnyDevice;  // the one that the memory is expected on, by CUDA's number; kAnyDevice: the pointer says
  Access access = Access::kRemoteReadWrite;  // without kRemoteAtomic, which is for memory that CPUs reach
  /// As of the other register_memory() with one: called once, when nothing touches the bytes any more.
  std::function<void()> release = nullptr;
};

/// A CUDA device as this process sees it, for people.
struct CudaDeviceInfo {
  std::string name;    // "cuda:0"
  std::string detail;  // model, CUDA version of the driver
  std::string how;     // how its memory crosses, and why not another way
};

/// This process's CUDA devices. Opens the driver. Errors: kNotFound (no driver, or no device), kUnimplemented (too
/// old): a sentence with the remedy. Threads: any.
FAIRLEAD_EXPORT Result<std::vector<CudaDeviceInfo>> cuda_devices();

}  // namespace fairlead::inline v0
