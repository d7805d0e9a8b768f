#include "base/crc.h"

#include <isa-l/crc.h>

namespace fairlead {
namespace {

/// ISA-L leaves the upper halves of the vector registers as it used them. While they hold something, many Intel CPUs
/// pay about 100 ns for each change between instructions of SSE, which is what this program is compiled to, and of AVX,
/// which is what the C library copies with.
void clear_upper_halves() noexcept {
#if defined(__x86_64__)
  static const bool has_them = __builtin_cpu_supports("avx") != 0;
  if (has_them) __asm__ volatile("vzeroupper" ::: "memory");
#endif
}

}  // namespace

std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before) noexcept {
  // ISA-L inverts the value before and after, so that it chains as zlib's does.
  const std::uint32_t crc = crc32_gzip_refl(before, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  clear_upper_halves();
  return crc;
}

}  // namespace fairlead
