// One piece of device memory, cleared: allocated, or mapped at addresses that somebody wishes for.
//
// What is mapped every context of the process on that device may use: that is for processes with one session. Owns the
// memory and its addresses. Threads: one at a time, in the context.
#pragma once

#include <cstdint>
#include <memory>

#include "fairlead/status.h"
#include "gpu/executor/cuda_context.h"

namespace fairlead::gpu {

class CudaPiece {
 public:
  /// Errors: kResourceExhausted (with the remedy), kUnavailable.
  static Result<std::unique_ptr<CudaPiece>> allocate(CudaContext& context, std::uint64_t bytes);
  /// `wish`: where it begins, if the driver has these addresses free. Errors: the same.
  static Result<std::unique_ptr<CudaPiece>> map(CudaContext& context, int ordinal, std::uint64_t bytes,
                                                std::uint64_t wish);
  /// Whether the driver and the device can do the latter.
  [[nodiscard]] static bool maps(const Driver& driver, int ordinal) noexcept;
  ~CudaPiece();
  CudaPiece(const CudaPiece&) = delete;
  CudaPiece& operator=(const CudaPiece&) = delete;

  [[nodiscard]] CuAddress base() const noexcept { return base_; }

 private:
  explicit CudaPiece(CudaContext& context) noexcept : context_(context) {}
  [[nodiscard]] Status map(int ordinal, std::uint64_t bytes, std::uint64_t wish);
  [[nodiscard]] Status clear(std::uint64_t bytes);

  CudaContext& context_;
  CuAddress base_ = 0;
  std::uint64_t addresses_ = 0;  // that were reserved; 0: it was allocated
  CuMemory memory_ = 0;          // that is to be mapped there
  std::uint64_t mapped_ = 0;     // bytes of it
};

}  // namespace fairlead::gpu
