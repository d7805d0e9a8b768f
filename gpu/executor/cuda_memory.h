// A session's memory on a GPU: one piece for all of its allocations, reserved and cleared when the session begins.
//
// So an allocation is a matter of this process, which no stream waits for; nobody reads what another session left; and
// what the session may have, it has. Handles name parts of it. Owns the piece. Threads: one at a time, in the context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>

#include "fairlead/command_service.h"
#include "gpu/executor/cuda_piece.h"
#include "gpu/executor/ranges.h"

namespace fairlead::gpu {

class CudaMemory {
 public:
  static constexpr std::uint64_t kAlignment = 256;
  [[nodiscard]] static constexpr std::uint64_t rounded(std::uint64_t bytes) noexcept {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  /// Errors: kResourceExhausted (with the remedy), kUnavailable.
  static Result<std::unique_ptr<CudaMemory>> reserve(CudaContext& context, std::uint64_t bytes,
                                                     std::size_t allocations);
  /// Before anything was allocated: from now on it is a piece of so many bytes that is mapped, where it is wished for
  /// if that is free. Errors: it has no bytes any more.
  [[nodiscard]] Status move(CudaContext& context, int ordinal, std::uint64_t bytes, std::uint64_t wish);

  struct Given {
    CuAddress at = 0;
    bool is_used = false;  // something was there before: it is to be cleared, after all that may still use it
  };
  command::Outcome allocate(command::Handle handle, std::uint64_t bytes, Given& given);
  /// Within the first `range` bytes of the piece.
  command::Outcome allocate_at(command::Handle handle, CuAddress address, std::uint64_t bytes, std::uint64_t range,
                               Given& given);
  command::Outcome release(command::Handle handle);
  /// [offset, offset + bytes) of an allocation. 0: there is no such thing, and in `why` the reason.
  [[nodiscard]] CuAddress find(command::Handle handle, std::uint64_t offset, std::uint64_t bytes,
                               command::Outcome& why) const;
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] CuAddress base() const noexcept { return piece_->base(); }

 private:
  CudaMemory(std::unique_ptr<CudaPiece> piece, std::uint64_t bytes, std::size_t allocations)
      : piece_(std::move(piece)), bytes_(bytes), most_(allocations), free_(bytes) {}

  struct Allocation {
    std::uint64_t at = 0, bytes = 0;  // in the piece; as was asked for
  };

  /// Not ok: there is to be no such allocation.
  [[nodiscard]] command::Outcome check_new(command::Handle handle, std::uint64_t bytes) const;
  void add(command::Handle handle, std::uint64_t at, std::uint64_t bytes, Given& given);

  std::unique_ptr<CudaPiece> piece_;
  std::uint64_t bytes_;
  const std::size_t most_;
  std::unordered_map<std::uint64_t, Allocation> allocations_;
  std::uint64_t allocated_ = 0;  // rounded
  std::uint64_t untouched_ = 0;  // from there on nothing was given yet
  Ranges free_;
};

}  // namespace fairlead::gpu
