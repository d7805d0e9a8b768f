// What one core copies of memory, by itself: the ground that shm stands on (scripts/measure_same_host).
//
//   fairlead-bench-copy --benchmark_filter=1048576
//
// From one buffer to another, each of the bytes that are copied at a time. Memcpy: the C library's; Stream: past the
// caches. bytes_per_second is of one direction.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstring>
#include <memory>

#include "base/stream_copy.h"

namespace fairlead::bench {
namespace {

template <typename Copy>
void copy_with(benchmark::State& state, Copy copy) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const auto from = std::make_unique<std::byte[]>(bytes), to = std::make_unique<std::byte[]>(bytes);
  std::memset(from.get(), 1, bytes);
  std::memset(to.get(), 2, bytes);
  for (auto _ : state) {
    copy(to.get(), from.get(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void Memcpy(benchmark::State& state) {
  copy_with(state, [](auto... all) { std::memcpy(all...); });
}
void Stream(benchmark::State& state) {
  copy_with(state, [](auto... all) { stream_copy(all...); });
}

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
BENCHMARK(Memcpy)->Arg(kMiB)->Arg(4 * kMiB)->Arg(16 * kMiB)->Arg(64 * kMiB)->UseRealTime();
BENCHMARK(Stream)->Arg(kMiB)->Arg(4 * kMiB)->Arg(16 * kMiB)->Arg(64 * kMiB)->UseRealTime();

}  // namespace
}  // namespace fairlead::bench
