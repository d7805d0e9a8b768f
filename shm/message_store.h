// Messages that the ring has no room for yet: their bytes, first in, first out, each in one piece.
// Storage is allocated when it is first needed. Threads: the driving thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "shm/ring/slot.h"

namespace fairlead::shm {

class MessageStore {
 public:
  /// Where `bytes` <= kMaxPiece go, or null: full. `end`: to be given to drop(), with every message before.
  [[nodiscard]] std::byte* add(std::uint64_t bytes, std::uint64_t& end) noexcept {
    const std::uint64_t offset = end_ % kBytes;
    const std::uint64_t begin = offset + bytes > kBytes ? end_ + kBytes - offset : end_;
    if (begin + bytes - first_ > kBytes) return nullptr;
    if (all_ == nullptr) all_.reset(new (std::nothrow) std::byte[kBytes]);
    if (all_ == nullptr) return nullptr;
    end = end_ = begin + bytes;
    return all_.get() + begin % kBytes;
  }
  /// The last so many before `end`.
  [[nodiscard]] const std::byte* get(std::uint64_t end, std::uint64_t bytes) const noexcept {
    return all_.get() + (end - bytes) % kBytes;
  }
  void drop(std::uint64_t end) noexcept { first_ = end; }

 private:
  static constexpr std::uint64_t kBytes = 128 * 1024;
  static_assert(kBytes >= 2 * kMaxPiece, "an empty store must take any message, wherever it begins");

  std::unique_ptr<std::byte[]> all_;
  std::uint64_t first_ = 0, end_ = 0;  // positions, counted from 0
};

}  // namespace fairlead::shm
