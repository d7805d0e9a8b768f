// What a block of a pool costs: taken and given back by one thread, or taken by one and given back by another, for an
// audience that keeps what it left, or cleared each time; a run of pages; what the system's allocator takes beside it.
//
//   fairlead-bench-pool --benchmark_filter=65536
//
// ns_p50 is the median over batches of the mean of a batch, in nanoseconds for a block taken and given back.
#include <benchmark/benchmark.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "bench/micro/batches.h"
#include "memreg/pool.h"

namespace fairlead::bench {
namespace {

using memreg::Audience;
using memreg::Pool;

constexpr std::size_t kCalls = 2000;  // in a batch: a multiple of 8

Audience one_of(Pool& pool) { return pool.audience(std::vector<std::string>{"a"}); }

void take_and_give(benchmark::State& state, std::size_t calls, const Pool::Request& request, Pool& pool) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  time_batches(state, calls, [&] {
    for (std::size_t i = 0; i < calls; ++i) {
      const auto block = pool.allocate(bytes, request);
      if (!block) {
        state.SkipWithError(block.error().message().c_str());
        return;
      }
      benchmark::DoNotOptimize(block->bytes.data());
      pool.free(*block);
    }
  });
}

void PoolAlone(benchmark::State& state) {
  Pool pool(memreg::PoolOptions{});
  take_and_give(state, kCalls, {.audience = one_of(pool)}, pool);
}
BENCHMARK(PoolAlone)->Arg(64)->Arg(4096)->Arg(65536)->Arg(262144)->UseManualTime();

// Who names no audience gets zeros.
void PoolCleared(benchmark::State& state) {
  Pool pool(memreg::PoolOptions{});
  take_and_give(state, 100, {}, pool);
}
BENCHMARK(PoolCleared)->Arg(64)->Arg(65536)->UseManualTime();

// Larger than a class.
void PoolRun(benchmark::State& state) {
  Pool pool(memreg::PoolOptions{});
  take_and_give(state, 100, {.audience = one_of(pool)}, pool);
}
BENCHMARK(PoolRun)->Arg(1 << 20)->Arg(16 << 20)->UseManualTime();

void Malloc(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  time_batches(state, kCalls, [&] {
    for (std::size_t i = 0; i < kCalls; ++i) {
      void* block = std::malloc(bytes);
      benchmark::DoNotOptimize(block);
      std::free(block);
    }
  });
}
BENCHMARK(Malloc)->Arg(64)->Arg(65536)->UseManualTime();

// Blocks on their way to the thread that frees them, told of eight at a time, so that it costs little beside the pool.
// One writer, one reader.
class Ring {
 public:
  void push(const Pool::Block& block) noexcept {
    while (next_ - read_.load(std::memory_order_acquire) == blocks_.size()) std::this_thread::yield();
    blocks_[next_++ % blocks_.size()] = block;
    if (next_ % 8 == 0) written_.store(next_, std::memory_order_release);
  }
  /// Calls take(block) on each that is there. How many.
  template <typename Take>
  std::size_t pop(const Take& take) noexcept {
    const std::size_t begin = read_.load(std::memory_order_relaxed);
    const std::size_t end = written_.load(std::memory_order_acquire);
    for (std::size_t at = begin; at != end; ++at) take(blocks_[at % blocks_.size()]);
    if (end != begin) read_.store(end, std::memory_order_release);
    return end - begin;
  }
  [[nodiscard]] bool empty() const noexcept { return read_.load(std::memory_order_acquire) == next_; }

 private:
  struct alignas(64) Slots : std::array<Pool::Block, 256> {};
  Slots blocks_;
  alignas(64) std::atomic<std::size_t> written_{0};
  alignas(64) std::atomic<std::size_t> read_{0};
  alignas(64) std::size_t next_ = 0;  // the writer's
};

// A batch ends when all of it is free again.
void PoolAcrossThreads(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  Pool pool(memreg::PoolOptions{});
  const Pool::Request request{.audience = one_of(pool)};
  Ring ring;
  std::jthread other([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (ring.pop([&](const Pool::Block& block) { pool.free(block); }) == 0) std::this_thread::yield();
    }
  });
  time_batches(state, kCalls, [&] {
    for (std::size_t i = 0; i < kCalls; ++i) {
      const auto block = pool.allocate(bytes, request);
      if (!block) {
        state.SkipWithError(block.error().message().c_str());
        break;
      }
      ring.push(*block);
    }
    while (!ring.empty()) std::this_thread::yield();
  });
}
BENCHMARK(PoolAcrossThreads)->Arg(64)->Arg(65536)->UseManualTime();

}  // namespace
}  // namespace fairlead::bench
