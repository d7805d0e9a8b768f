// Bytes of tests. A loop over bytes is most of the time of a test that is compiled without optimization, so these go
// by words or leave the work to the C library.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace fairlead {

/// `count` words of pattern `seed` from word `place` on. What it writes is its caller's alone, so no sanitizer need
/// look.
#if defined(__clang__)
__attribute__((no_sanitize("thread", "address")))
#endif
inline void
fill_words(std::uint64_t* words, std::size_t count, std::uint64_t place, std::uint64_t seed) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t word = (place + i + 1) * 0x9e37'79b9'7f4a'7c15 + (seed + 1) * 0xd1b5'4a32'd192'ed03;
    word = (word ^ word >> 32) * 0xbf58'476d'1ce4'e5b9;
    words[i] = word ^ word >> 29;
  }
}

/// The bytes of pattern `seed` from its byte `first` on: patterns differ between places and between seeds.
template <class Range>
void fill_pattern(Range&& range, std::uint64_t seed, std::size_t first = 0) {
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(range));
  std::array<std::uint64_t, 64> words;  // at once, so that a sanitizer has one range to look at
  for (std::size_t done = 0; done < bytes.size();) {
    const std::size_t place = first + done, within = place % 8;
    const std::size_t count = std::min(sizeof words - within, bytes.size() - done);
    fill_words(words.data(), (within + count + 7) / 8, place / 8, seed);
    std::memcpy(bytes.data() + done, reinterpret_cast<const std::byte*>(words.data()) + within, count);
    done += count;
  }
}

inline std::vector<std::byte> pattern(std::size_t count, std::uint64_t seed, std::size_t first = 0) {
  std::vector<std::byte> bytes(count);
  fill_pattern(bytes, seed, first);
  return bytes;
}

inline bool are_same(std::span<const std::byte> one, std::span<const std::byte> other) {
  return one.size() == other.size() && (one.empty() || std::memcmp(one.data(), other.data(), one.size()) == 0);
}

inline bool is_pattern(std::span<const std::byte> bytes, std::uint64_t seed, std::size_t first = 0) {
  return are_same(bytes, pattern(bytes.size(), seed, first));
}

inline void set_all(std::span<std::byte> bytes, std::byte value) {
  if (!bytes.empty()) std::memset(bytes.data(), std::to_integer<int>(value), bytes.size());
}

template <class Range>
bool are_all(const Range& range, std::byte value) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(range));
  return bytes.empty() || (bytes[0] == value && are_same(bytes.subspan(1), bytes.first(bytes.size() - 1)));
}

}  // namespace fairlead
