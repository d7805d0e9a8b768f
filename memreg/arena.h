// Page-aligned anonymous memory, zeroed, private to the process; unmapped when its owner goes.
#pragma once

#include <cstddef>
#include <span>
#include <stop_token>

#include "fairlead/status.h"

namespace fairlead::memreg {

/// Bytes of a page of this system (not of a huge page).
[[nodiscard]] std::size_t page_size() noexcept;

/// Move-only. Threads: a value; the bytes are the user's to synchronise.
class Arena {
 public:
  /// Maps `bytes`, rounded up to pages. Asks the kernel for huge pages, which it may or may not give.
  /// Errors: kInvalidArgument (0 bytes), kResourceExhausted (names the size, the limit and the remedy).
  static Result<Arena> map(std::size_t bytes);

  Arena() noexcept = default;
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  ~Arena();

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }

 private:
  explicit Arena(std::span<std::byte> bytes) noexcept : bytes_(bytes) {}
  std::span<std::byte> bytes_;
};

/// Finds and clears the pages now, not under the first access: piece by piece, because the kernel holds the process's
/// memory map for a whole call, and every thread that maps anything waits for it. Content stays. A hint: kernels before
/// 5.14 refuse it. Ends early when `stop` is requested.
void populate(std::span<std::byte> bytes, const std::stop_token& stop = {}) noexcept;

}  // namespace fairlead::memreg
