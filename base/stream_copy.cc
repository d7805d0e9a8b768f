#include "base/stream_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fairlead {

#if defined(__x86_64__)
namespace {

constexpr std::size_t kLine = 64;
// What the loads will want: hardware looks ahead within a page alone. Into all caches, as by a load: with the hint for
// what is used once (NTA) it takes 1.4 to 1.6 times as long (docs/perf-notebook.md).
constexpr std::size_t kAhead = 16 * kLine;

/// `to` at a multiple of a line; whole lines.
__attribute__((target("avx"))) void stream_lines_avx(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  for (std::size_t at = 0; at < bytes; at += kLine) {
    _mm_prefetch(reinterpret_cast<const char*>(from + at + kAhead), _MM_HINT_T0);
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at + kLine / 2));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at), low);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at + kLine / 2), high);
  }
}

void stream_lines_sse2(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  for (std::size_t at = 0; at < bytes; at += kLine) {
    _mm_prefetch(reinterpret_cast<const char*>(from + at + kAhead), _MM_HINT_T0);
    for (std::size_t part = 0; part < kLine; part += sizeof(__m128i)) {
      const __m128i value = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at + part));
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + at + part), value);
    }
  }
}

}  // namespace

void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  static const bool has_avx = __builtin_cpu_supports("avx") != 0;
  const std::size_t head = std::min(bytes, (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine);
  const std::size_t lines = (bytes - head) / kLine * kLine;
  if (head > 0) std::memcpy(to, from, head);
  (has_avx ? stream_lines_avx : stream_lines_sse2)(to + head, from + head, lines);
  _mm_sfence();
  if (const std::size_t done = head + lines; done < bytes) std::memcpy(to + done, from + done, bytes - done);
}

#else

void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept { std::memcpy(to, from, bytes); }

#endif

}  // namespace fairlead
