// The pieces of memory that lie behind one another in a list of segments. Threads: pure functions.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace fairlead::shm {

/// Calls `body(piece, length)` for `length` bytes from `offset` on, until it says false. Returns whether it never did.
template <typename Body>
bool for_pieces(std::span<const iovec> segments, std::uint64_t offset, std::uint64_t length, const Body& body) {
  for (const iovec& segment : segments) {
    if (length == 0) break;
    if (offset >= segment.iov_len) {
      offset -= segment.iov_len;
      continue;
    }
    const std::size_t bytes = std::min<std::uint64_t>(segment.iov_len - offset, length);
    if (!body(static_cast<std::byte*>(segment.iov_base) + offset, bytes)) return false;
    length -= bytes;
    offset = 0;
  }
  return true;
}

}  // namespace fairlead::shm
