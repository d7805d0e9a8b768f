// Addresses of this process that nothing is at, and nothing will be: what a session's memory has on the device, nothing
// of this process has.
//
// Owns them; their end makes them free. Threads: any.
#pragma once

#include <cstdint>
#include <utility>

#include "fairlead/status.h"

namespace fairlead::datapath::command {

class LocalRange {
 public:
  /// CUDA gives addresses that are wished for at multiples of this; elsewhere it takes the next such place.
  static constexpr std::uint64_t kAlignment = std::uint64_t{32} << 20;

  LocalRange() noexcept = default;
  LocalRange(LocalRange&& other) noexcept
      : base_(std::exchange(other.base_, 0)), bytes_(std::exchange(other.bytes_, 0)) {}
  LocalRange& operator=(LocalRange&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~LocalRange();

  /// Anywhere, at a multiple of kAlignment. Errors: kResourceExhausted.
  static Result<LocalRange> reserve(std::uint64_t bytes);
  /// There. Errors: kUnavailable, they are taken.
  static Result<LocalRange> reserve_at(std::uint64_t base, std::uint64_t bytes);

  [[nodiscard]] std::uint64_t base() const noexcept { return base_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  LocalRange(std::uint64_t base, std::uint64_t bytes) noexcept : base_(base), bytes_(bytes) {}

  std::uint64_t base_ = 0, bytes_ = 0;
};

}  // namespace fairlead::datapath::command
