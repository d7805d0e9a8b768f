// Pinned host memory of a session that its copies go through: parts of it, each for as long as a copy is under way.
// Owns the memory. Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "gpu/driver/pinned.h"
#include "gpu/executor/ranges.h"

namespace fairlead::gpu {

class CudaStaging {
 public:
  /// What goes in one call: while one is copied by the device the next is filled.
  static constexpr std::size_t kPiece = std::size_t{256} << 10;
  static constexpr std::size_t kGrain = 64;

  explicit CudaStaging(std::unique_ptr<PinnedMemory> memory)
      : memory_(std::move(memory)), free_(memory_->bytes().size() / kGrain * kGrain) {}

  [[nodiscard]] std::size_t size() const noexcept { return memory_->bytes().size(); }
  /// Pieces for so many bytes, all of them or none. `bytes` is not 0.
  [[nodiscard]] std::vector<std::span<std::byte>> take(std::size_t bytes);
  void give(std::span<std::byte> piece) noexcept;
  void leave_to_context() noexcept { memory_->leave_to_context(); }

 private:
  const std::unique_ptr<PinnedMemory> memory_;
  Ranges free_;
};

}  // namespace fairlead::gpu
