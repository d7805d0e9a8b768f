// Host memory that CUDA has pinned: what copies go through without waiting for one another. Ownership: given back to
// CUDA with the object; nothing uses a slot any more by then. Threads: one at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "fairlead/status.h"
#include "gpu/driver/driver.h"

namespace fairlead::gpu {

class PinnedMemory {
 public:
  /// Errors: kResourceExhausted (with the remedy), kUnavailable.
  static Result<std::unique_ptr<PinnedMemory>> allocate(std::shared_ptr<Driver> driver, int ordinal, std::size_t bytes);
  /// The same in a context that outlives it; `setting`: what to lower if there is none.
  static Result<std::unique_ptr<PinnedMemory>> allocate(std::shared_ptr<Driver> driver, CuContext context,
                                                        std::size_t bytes, std::string_view setting);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  /// It is given back by the end of its context instead: a copy may be under way that nobody can wait for.
  void leave_to_context() noexcept { left_ = true; }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }

 private:
  PinnedMemory(std::shared_ptr<Driver> driver, CuContext context, std::span<std::byte> bytes)
      : driver_(std::move(driver)), context_(context), bytes_(bytes) {}
  const std::shared_ptr<Driver> driver_;
  const CuContext context_;
  const std::span<std::byte> bytes_;
  bool left_ = false;
};

}  // namespace fairlead::gpu
