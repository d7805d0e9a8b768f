// What the CRC's code leaves behind in the CPU.
#include "base/crc.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>

namespace fairlead {
namespace {

constexpr std::uint32_t kUpperHalves = 1u << 2;  // of XCR0 (Intel SDM 13.1)

/// Whether XGETBV tells which state components are in use (Intel SDM 13.6).
bool tells_what_is_in_use() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_OSXSAVE) == 0 || (c & bit_AVX) == 0) return false;
  return __get_cpuid_count(0xd, 1, &a, &b, &c, &d) != 0 && (a & (1u << 2)) != 0;
}

bool upper_halves_in_use() {
  std::uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
  return (low & kUpperHalves) != 0;
}

// They would slow down all code that mixes SSE and AVX, which is nearly all.
TEST(Crc, LeavesNoUpperHalvesOfVectorRegistersInUse) {
  if (!tells_what_is_in_use()) GTEST_SKIP() << "this CPU does not tell which of its registers are in use";
  const std::vector<std::byte> bytes(4096, std::byte{7});
  __asm__ volatile("vzeroupper" ::: "memory");
  if (upper_halves_in_use()) GTEST_SKIP() << "this CPU counts them as in use at all times";
  std::uint32_t crc = 0;
  bool in_use = false;
  for (int i = 0; i < 100; ++i) {
    crc = crc32(bytes, crc);
    in_use |= upper_halves_in_use();
  }
  EXPECT_NE(crc, 0u);
  EXPECT_FALSE(in_use);
}

}  // namespace
}  // namespace fairlead
#endif
