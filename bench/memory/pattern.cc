#include "bench/memory/pattern.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/crc.h"

namespace fairlead::bench {
namespace {

// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014) as a counter-based generator.
std::uint64_t word(std::uint64_t key, std::uint64_t index) noexcept {
  std::uint64_t z = key + (index + 1) * 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

std::uint64_t key_of(std::uint64_t seed, std::uint64_t slot) noexcept { return word(seed, ~slot); }

// Words `first` and on of the stream.
void fill(std::span<std::byte> bytes, std::uint64_t key, std::uint64_t first) noexcept {
  std::size_t at = 0;
  for (std::uint64_t index = first; at < bytes.size(); ++index, at += sizeof index) {
    const std::uint64_t value = word(key, index);
    std::memcpy(bytes.data() + at, &value, std::min(sizeof value, bytes.size() - at));
  }
}

}  // namespace

void fill_pattern(std::span<std::byte> bytes, std::uint64_t seed, std::uint64_t slot) noexcept {
  fill(bytes, key_of(seed, slot), 0);
}

std::uint32_t pattern_crc(std::uint64_t size, std::uint64_t seed, std::uint64_t slot) noexcept {
  std::array<std::byte, 8192> buffer;
  const std::uint64_t key = key_of(seed, slot);
  std::uint32_t crc = 0;
  for (std::uint64_t done = 0; done < size; done += buffer.size()) {
    const std::span<std::byte> part(buffer.data(), std::min<std::uint64_t>(buffer.size(), size - done));
    fill(part, key, done / sizeof(std::uint64_t));
    crc = crc32(part, crc);
  }
  return crc;
}

std::string_view what_else(std::uint32_t crc, std::uint64_t size, std::uint64_t seed, std::uint64_t slot) {
  constexpr std::uint64_t kSeeds = 8, kSlots = 64;  // that measurements have, about
  for (std::uint64_t other = 0; other < kSeeds; ++other) {
    if (other != seed && crc == pattern_crc(size, other, slot)) return "what was there before";
  }
  for (std::uint64_t other = 0; other < kSlots; ++other) {
    if (other != slot && crc == pattern_crc(size, seed, other)) return "what another slot should hold";
  }
  const std::vector<std::byte> zeros(size);
  return crc == crc32(zeros) ? "zeros, as if nothing had come" : "other bytes than were sent";
}

}  // namespace fairlead::bench
