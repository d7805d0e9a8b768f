// Ranges of addresses, as the cache counts in them: whole pages of this process.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace fairlead::memreg::cache {

/// [begin, end) of addresses. A value.
struct Range {
  std::uintptr_t begin = 0, end = 0;

  [[nodiscard]] std::size_t size() const noexcept { return end - begin; }
  [[nodiscard]] bool empty() const noexcept { return end <= begin; }
  [[nodiscard]] bool holds(Range other) const noexcept { return begin <= other.begin && other.end <= end; }
  [[nodiscard]] bool overlaps(Range other) const noexcept { return begin < other.end && other.begin < end; }
  [[nodiscard]] Range with(Range other) const noexcept {
    return {std::min(begin, other.begin), std::max(end, other.end)};
  }
  [[nodiscard]] Range within(Range other) const noexcept {
    return {std::max(begin, other.begin), std::min(end, other.end)};
  }
  bool operator==(const Range&) const = default;
};

/// Bytes of a page.
[[nodiscard]] inline std::size_t page_bytes() noexcept {
  static const auto kBytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return kBytes;
}

[[nodiscard]] inline Range range_of(std::span<const std::byte> bytes) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  return {begin, begin + bytes.size()};
}

/// The pages that the bytes lie in. They must not reach the last page of all addresses.
[[nodiscard]] inline Range pages_of(Range range) noexcept {
  const std::uintptr_t mask = page_bytes() - 1;
  return {range.begin & ~mask, (range.end + mask) & ~mask};
}

[[nodiscard]] inline std::span<std::byte> bytes_of(Range range) noexcept {
  return {reinterpret_cast<std::byte*>(range.begin), range.size()};  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace fairlead::memreg::cache
