// Walks a list of segments: the checked pieces of memory behind a range of a message.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/guarded.h"
#include "verbs/soft/memory/mr_table.h"

namespace fairlead::soft {

/// Calls piece(bytes, length) for each part of [offset, offset + length) of the segments' concatenation, in order.
/// False, having called for the parts before it, when a segment's key does not grant `access`, or when the piece
/// answers false.
template <typename Piece>
bool for_each_piece(const MrTable& regions, const ibv_pd* pd, std::span<const ibv_sge> segments, std::uint64_t offset,
                    std::size_t length, unsigned access, Piece&& piece) noexcept {
  for (const ibv_sge& segment : segments) {
    if (length == 0) break;
    if (offset >= segment.length) {
      offset -= segment.length;
      continue;
    }
    const std::size_t part = std::min<std::size_t>(length, segment.length - offset);
    std::byte* bytes = regions.find(pd, segment.lkey, segment.addr + offset, part, access | kLocalRead, 0);
    if (bytes == nullptr) return false;
    if (!piece(bytes, part)) return false;
    length -= part;
    offset = 0;
  }
  return length == 0;
}

/// Copies payload into memory; false when that memory is gone. The last byte is stored last and with release: programs
/// that poll it, though they should not, must then see the rest.
[[nodiscard]] inline bool place(std::byte* to, const std::byte* from, std::size_t length) noexcept {
  if (length == 0) return true;
  return attempt(to, length, [=] {
    touch(to + length - 1);
    std::memcpy(to, from, length - 1);
    std::atomic_ref(to[length - 1]).store(from[length - 1], std::memory_order_release);
  });
}

}  // namespace fairlead::soft
