#include "bench/collective/reduce.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

namespace fairlead::bench {
namespace {

// The compiler makes vectors of this loop and the next (this file is compiled with -O3).
void add_f32(float* into, const float* from, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) into[i] += from[i];
}

float widen_bf16(std::uint16_t value) noexcept { return std::bit_cast<float>(std::uint32_t{value} << 16); }

std::uint16_t narrow_bf16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const std::uint32_t nan = (bits >> 16) | 0x40;  // quiet; rounding could carry its bits away
  return static_cast<std::uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

void add_bf16(std::uint16_t* into, const std::uint16_t* from, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) into[i] = narrow_bf16(widen_bf16(into[i]) + widen_bf16(from[i]));
}

float widen_f16(std::uint16_t value) noexcept {
  const std::uint32_t sign = std::uint32_t{value & 0x8000U} << 16;
  const std::uint32_t rest = value & 0x7fffU;
  if (rest >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | ((rest & 0x3ff) << 13));  // infinite, NaN
  if (rest >= 0x400) return std::bit_cast<float>(sign | ((rest << 13) + (std::uint32_t{127 - 15} << 23)));
  const float tiny = static_cast<float>(rest) * 0x1p-24F;  // exact
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(tiny));
}

std::uint16_t narrow_f16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000);
  const std::uint32_t rest = bits & 0x7fffffff;
  if (rest > 0x7f800000) return static_cast<std::uint16_t>(sign | 0x7e00 | ((rest >> 13) & 0x3ff));
  if (rest >= 0x477ff000) return static_cast<std::uint16_t>(sign | 0x7c00);  // rounds to more than 65504
  if (rest < 0x38800000) {  // below 2^-14: the sum with a number whose last bit is 2^-24 rounds as it must
    const float shifted = std::bit_cast<float>(rest) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000));
  }
  const std::uint32_t rounded = rest - (std::uint32_t{127 - 15} << 23) + 0xfff + ((rest >> 13) & 1);
  return static_cast<std::uint16_t>(sign | (rounded >> 13));
}

void add_f16_plain(std::uint16_t* into, const std::uint16_t* from, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) into[i] = narrow_f16(widen_f16(into[i]) + widen_f16(from[i]));
}

#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) void add_f16_vectors(std::uint16_t* into, const std::uint16_t* from,
                                                         std::size_t count) noexcept {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 a = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(into + i)));
    const __m256 b = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
    const __m128i sum = _mm256_cvtps_ph(_mm256_add_ps(a, b), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(into + i), sum);
  }
  _mm256_zeroupper();
  add_f16_plain(into + i, from + i, count - i);
}
#endif

void add_f16(std::uint16_t* into, const std::uint16_t* from, std::size_t count) noexcept {
#if defined(__x86_64__)
  static const bool vectors = __builtin_cpu_supports("avx") != 0 && __builtin_cpu_supports("f16c") != 0;
  if (vectors) return add_f16_vectors(into, from, count);
#endif
  add_f16_plain(into, from, count);
}

/// A small whole number as an element's bits.
std::uint32_t bits_of(DType dtype, unsigned number) noexcept {
  const auto value = static_cast<float>(number);
  if (dtype == DType::kF16) return narrow_f16(value);
  if (dtype == DType::kBF16) return narrow_bf16(value);
  return std::bit_cast<std::uint32_t>(value);
}

/// 1 to 4, in no order that a shift would repeat.
unsigned times_at(std::size_t index) noexcept {
  return 1 + static_cast<unsigned>(static_cast<std::uint32_t>(index) * 2654435761U >> 30);
}

class Pattern {
 public:
  Pattern(DType dtype, unsigned number) noexcept {
    for (unsigned i = 0; i < 4; ++i) bits_[i] = bits_of(dtype, number * (i + 1));
  }
  [[nodiscard]] const std::uint32_t& at(std::size_t index) const noexcept { return bits_[times_at(index) - 1]; }

 private:
  std::array<std::uint32_t, 4> bits_;
};

}  // namespace

bool can_add(DType dtype) noexcept { return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16; }

void add(DType dtype, std::byte* into, const std::byte* from, std::size_t count) noexcept {
  switch (dtype) {
    case DType::kF32:
      return add_f32(reinterpret_cast<float*>(into), reinterpret_cast<const float*>(from), count);
    case DType::kF16:
      return add_f16(reinterpret_cast<std::uint16_t*>(into), reinterpret_cast<const std::uint16_t*>(from), count);
    case DType::kBF16:
      return add_bf16(reinterpret_cast<std::uint16_t*>(into), reinterpret_cast<const std::uint16_t*>(from), count);
    default:
      return;
  }
}

void fill(DType dtype, std::span<std::byte> into, unsigned number) noexcept {
  const Pattern pattern(dtype, number);
  const std::size_t size = element_size(dtype);
  for (std::size_t i = 0; i < into.size() / size; ++i) std::memcpy(into.data() + i * size, &pattern.at(i), size);
}

std::size_t find_other(DType dtype, std::span<const std::byte> in, unsigned number) noexcept {
  const Pattern pattern(dtype, number);
  const std::size_t size = element_size(dtype);
  std::size_t i = 0;
  while (i < in.size() / size && std::memcmp(in.data() + i * size, &pattern.at(i), size) == 0) ++i;
  return i;
}

}  // namespace fairlead::bench
