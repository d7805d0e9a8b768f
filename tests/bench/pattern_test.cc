#include "bench/memory/pattern.h"

#include <gmock/gmock.h>

#include <set>
#include <vector>

#include "base/crc.h"

namespace fairlead::bench {
namespace {

TEST(Pattern, CrcIsThatOfTheFilledBytes) {
  for (const std::size_t size : {1UL, 7UL, 8UL, 9UL, 8191UL, 8192UL, 8193UL, 100'003UL}) {
    std::vector<std::byte> bytes(size);
    fill_pattern(bytes, 5, 3);
    EXPECT_EQ(pattern_crc(size, 5, 3), crc32(bytes)) << size;
  }
}

TEST(Pattern, SeedsSlotsAndSizesDiffer) {
  std::set<std::uint32_t> crcs;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    for (std::uint64_t slot = 0; slot < 10; ++slot) {
      for (const std::uint64_t size : {8U, 4096U}) crcs.insert(pattern_crc(size, seed, slot));
    }
  }
  EXPECT_EQ(crcs.size(), 200U);
}

TEST(Pattern, OneChangedOrMovedByteIsFound) {
  std::vector<std::byte> bytes(64);
  fill_pattern(bytes, 1, 0);
  const std::uint32_t good = crc32(bytes);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] ^= std::byte{1};
    EXPECT_NE(crc32(bytes), good);
    bytes[i] ^= std::byte{1};
  }
  std::swap(bytes[3], bytes[40]);
  EXPECT_NE(crc32(bytes), good);
}

TEST(Pattern, WhatASlotHoldsInsteadIsNamed) {
  std::vector<std::byte> bytes(128);
  const auto named = [&] { return what_else(crc32(bytes), bytes.size(), 2, 5); };
  EXPECT_EQ(named(), "zeros, as if nothing had come");
  fill_pattern(bytes, 1, 5);
  EXPECT_EQ(named(), "what was there before");
  fill_pattern(bytes, 2, 6);
  EXPECT_EQ(named(), "what another slot should hold");
  bytes[7] ^= std::byte{1};
  EXPECT_EQ(named(), "other bytes than were sent");
}

}  // namespace
}  // namespace fairlead::bench
