// What one packet's payload takes at least at either end: one memcpy and one CRC-32 of it, on one core.
//
//   fairlead-copy-crc BYTES FOOTPRINT     prints nanoseconds per block of BYTES, for memcpy, CRC-32, and both in turn
//
// Blocks are copied round FOOTPRINT bytes of source and of destination, as `fairlead bench bw` goes round its slots
// (4194304 there). The CRC is over the copy, which is in the cache. Each figure is the median of 15 passes. The packet
// path over DPDK is measured against this (docs/perf-notebook.md).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "base/crc.h"
#include "bench/base/floor_program.h"

namespace {

using fairlead::bench::number_argument;
using Clock = std::chrono::steady_clock;

constexpr unsigned kMostBytes = 1U << 30;
constexpr std::size_t kPasses = 15;
constexpr std::size_t kBytesPerPass = std::size_t{64} << 20;  // some milliseconds

// The median over the passes of what work(offset) takes, in nanoseconds.
template <typename Work>
double time_it(std::size_t bytes, std::size_t footprint, Work work) {
  const std::size_t blocks = footprint / bytes;
  const std::size_t count = std::max(kBytesPerPass / bytes, blocks);
  std::array<double, kPasses> taken{};
  for (double& pass : taken) {
    const Clock::time_point begin = Clock::now();
    for (std::size_t i = 0; i < count; ++i) work(i % blocks * bytes);
    const std::chrono::duration<double, std::nano> all = Clock::now() - begin;
    pass = all.count() / static_cast<double>(count);
  }
  std::nth_element(taken.begin(), taken.begin() + kPasses / 2, taken.end());
  return taken[kPasses / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: fairlead-copy-crc BYTES FOOTPRINT\n");
    return 2;
  }
  const std::size_t bytes = number_argument(argv[1], kMostBytes);
  const std::size_t footprint = std::max<std::size_t>(number_argument(argv[2], kMostBytes), bytes);
  std::vector<std::byte> from(footprint, std::byte{0x5a});
  std::vector<std::byte> to(footprint);
  std::uint32_t crc = 0;
  const auto copy = [&](std::size_t at) { std::memcpy(&to[at], &from[at], bytes); };
  const auto check = [&](std::size_t at) { crc ^= fairlead::crc32(std::span(to).subspan(at, bytes)); };
  const double copying = time_it(bytes, footprint, copy);
  const double checking = time_it(bytes, footprint, check);
  const double both = time_it(bytes, footprint, [&](std::size_t at) {
    copy(at);
    check(at);
  });
  fmt::print("{} bytes: memcpy {:.1f} ns, CRC-32 {:.1f} ns, both {:.1f} ns (crc {:08x})\n", bytes, copying, checking,
             both, crc);
  return 0;
}
