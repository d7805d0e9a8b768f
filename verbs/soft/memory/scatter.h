// Walks a list of segments: the checked pieces of memory behind a range of a message.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/guarded.h"
#include "verbs/soft/memory/mr_table.h"
#include "verbs/soft/wire/payload_source.h"

namespace fairlead::soft {

/// Calls piece(bytes, length) for each part of [offset, offset + length) of the segments' concatenation, in order. A
/// part that lies in a null region is several, each no longer than what find() gives there. False, having called for
/// the parts before it, when a segment's key does not grant `access`, or when the piece answers false.
template <typename Piece>
bool for_each_piece(const MrTable& regions, const ibv_pd* pd, std::span<const ibv_sge> segments, std::uint64_t offset,
                    std::size_t length, unsigned access, Piece&& piece) noexcept {
  for (const ibv_sge& segment : segments) {
    if (length == 0) break;
    if (offset >= segment.length) {
      offset -= segment.length;
      continue;
    }
    std::size_t part = std::min<std::size_t>(length, segment.length - offset);
    std::byte* bytes = regions.find(pd, segment.lkey, segment.addr + offset, part, access | kLocalRead, 0);
    if (bytes == nullptr) return false;
    length -= part;
    for (; regions.is_nothing(bytes) && part > MrTable::kNullBytes; part -= MrTable::kNullBytes) {
      if (!piece(bytes, MrTable::kNullBytes)) return false;
    }
    if (!piece(bytes, part)) return false;
    offset = 0;
  }
  return length == 0;
}

/// As for_each_piece, but one piece at most, the first.
[[nodiscard]] inline std::span<std::byte> first_piece(const MrTable& regions, const ibv_pd* pd,
                                                      std::span<const ibv_sge> segments, std::uint64_t offset,
                                                      std::size_t length, unsigned access) noexcept {
  std::span<std::byte> first;
  static_cast<void>(
      for_each_piece(regions, pd, segments, offset, length, access, [&first](std::byte* bytes, std::size_t part) {
        first = {bytes, part};
        return false;
      }));
  return first;
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

/// Where a packet's payload goes, piece by piece. What came along is copied at once, what did not when all are known.
class Placing {
 public:
  Placing(std::span<const std::byte> payload, PayloadSource* source) noexcept
      : from_(payload.data()), source_(source) {}

  /// The next place. False: its memory is gone.
  [[nodiscard]] bool add(std::byte* to, std::size_t length) noexcept {
    if (source_ != nullptr) return note(to, length);
    const bool placed = place(to, from_, length);
    from_ += length;
    return placed;
  }
  /// There are no more. False: the packet did not arrive.
  [[nodiscard]] bool finish() noexcept {
    return source_ == nullptr || source_->fetch(std::span<const iovec>(places_).first(count_));
  }

 private:
  bool note(std::byte* to, std::size_t length) noexcept {
    if (count_ == places_.size()) return false;
    places_[count_++] = {to, length};
    return true;
  }

  const std::byte* from_;
  PayloadSource* source_;
  std::size_t count_ = 0;
  std::array<iovec, PayloadSource::kMostPlaces> places_;
};

}  // namespace fairlead::soft
