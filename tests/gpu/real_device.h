// Tests on a GPU that is there, where otherwise the double of the driver is: FAIRLEAD_TEST_CUDA names code for it, PTX
// that nvcc made of device_kernels.cu (scripts/gpu/README.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fairlead/cuda_executor.h"
#include "fairlead/host_executor.h"

namespace fairlead::gpu::testing {

/// FAIRLEAD_TEST_CUDA is there.
[[nodiscard]] bool on_real_device();

/// The code, with functions of that name and parameters. What it says to the test goes to `signals`. `name`: code of
/// different names is different. Throws where there is none.
[[nodiscard]] command::CudaModule real_code(std::span<const command::HostKernel> kernels, const void* signals = nullptr,
                                            const std::string& name = "");

/// The system's device reaches the page at `memory` while this lives.
[[nodiscard]] std::shared_ptr<void> let_device_reach(void* memory, std::size_t bytes);

/// Memory of the device's, freed with this; what it holds comes and goes by copies.
class RealBytes {
 public:
  RealBytes(std::size_t bytes, int ordinal);
  ~RealBytes();
  RealBytes(const RealBytes&) = delete;
  RealBytes& operator=(const RealBytes&) = delete;
  [[nodiscard]] std::span<std::byte> bytes() const noexcept;

 private:
  std::uintptr_t at_ = 0;
  std::size_t bytes_ = 0;
  int ordinal_ = 0;
};
/// To and from any part of such memory.
void put(std::span<std::byte> device, std::span<const std::byte> from);
[[nodiscard]] std::vector<std::byte> get(std::span<const std::byte> device);

}  // namespace fairlead::gpu::testing
