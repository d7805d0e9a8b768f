// What it costs to find a registration, and to come by one: over a device double that registers at once, or in 1 ms.
//
//   fairlead-bench-registration_cache [--benchmark_filter=Hit]
//
// The hook's counters: registrations made per iteration. RegisterAndRelease makes and ends a million registrations, and
// says by how much memory grew meanwhile, and how the last tenth of them compared with the first in time. Not measured:
// what pinning costs at a device.
#include <benchmark/benchmark.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "bench/micro/model_shapes.h"
#include "memreg/cache/registration_cache.h"

namespace fairlead::bench {
namespace {

using memreg::cache::CacheConfig;
using memreg::cache::Lease;
using memreg::cache::page_bytes;
using memreg::cache::RegisterHook;
using memreg::cache::RegistrationCache;

/// Address space of the benchmark's own, of which little is touched.
class Mapped {
 public:
  explicit Mapped(std::size_t bytes)
      : bytes_(bytes),
        data_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  Mapped(Mapped&& other) noexcept : bytes_(other.bytes_), data_(std::exchange(other.data_, MAP_FAILED)) {}
  ~Mapped() {
    if (data_ != MAP_FAILED) ::munmap(data_, bytes_);
  }
  [[nodiscard]] bool good() const noexcept { return data_ != MAP_FAILED; }
  [[nodiscard]] std::span<std::byte> all() const noexcept { return {static_cast<std::byte*>(data_), bytes_}; }

 private:
  std::size_t bytes_;
  void* data_;
};

/// Counts what it is asked to register, and takes so long for it.
struct Device {
  std::chrono::milliseconds takes{0};
  std::atomic<std::uint64_t> registered{0};

  [[nodiscard]] RegisterHook hook() {
    return [this](std::span<std::byte>) -> Result<std::shared_ptr<void>> {
      registered.fetch_add(1, std::memory_order_relaxed);
      if (takes.count() > 0) std::this_thread::sleep_for(takes);
      return std::shared_ptr<void>(std::shared_ptr<void>(), this);
    };
  }
};

std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t size = 0, resident = 0;
  statm >> size >> resident;
  return resident * page_bytes();
}

/// False, and the benchmark is skipped, where memory cannot be watched.
bool can_find(benchmark::State& state, RegistrationCache& cache, std::span<std::byte> bytes) {
  const auto lease = cache.find(bytes);
  if (!lease) state.SkipWithError(lease.error().message().c_str());
  return lease.has_value();
}

/// Ranges of a page, each registered by itself.
std::vector<std::span<std::byte>> apart(std::span<std::byte> memory, std::size_t count) {
  std::vector<std::span<std::byte>> ranges;
  for (std::size_t i = 0; i < count; ++i) ranges.push_back(memory.subspan(2 * i * page_bytes(), page_bytes()));
  return ranges;
}

/// Look-ups of ranges that are registered already, by turns.
void find_registered(benchmark::State& state, bool declared) {
  const auto count = static_cast<std::size_t>(state.range(0));
  const Mapped memory(2 * count * page_bytes());
  Device device;
  RegistrationCache cache({}, device.hook());
  const auto ranges = apart(memory.all(), count);
  for (const auto& each : ranges) {
    const Status done = declared ? cache.declare(each) : cache.find(each).status();
    if (!done.ok()) return state.SkipWithError(done.message().c_str());
  }
  std::size_t next = 0;
  for (auto _ : state) {
    const auto lease = cache.find(ranges[next]);
    benchmark::DoNotOptimize(lease.has_value());
    next = next + 1 == ranges.size() ? 0 : next + 1;
  }
}

void DeclaredHit(benchmark::State& state) { find_registered(state, true); }
BENCHMARK(DeclaredHit)->Arg(1)->Arg(1000);

void CachedHit(benchmark::State& state) { find_registered(state, false); }
BENCHMARK(CachedHit)->Arg(1)->Arg(1000);

/// All at once, by a device that takes 1 ms for each.
void register_tensors(benchmark::State& state, const std::vector<std::span<std::byte>>& tensors) {
  Device device{.takes = std::chrono::milliseconds(1)};
  RegistrationCache cache({}, device.hook());
  if (!can_find(state, cache, tensors.front())) return;
  device.registered.store(0);
  for (auto _ : state) {
    {
      const auto leases = cache.find(tensors);
      if (!leases) return state.SkipWithError(leases.error().message().c_str());
    }
    state.PauseTiming();
    cache.trim();
    state.ResumeTiming();
  }
  state.counters["registrations"] =
      benchmark::Counter(static_cast<double>(device.registered.load()), benchmark::Counter::kAvgIterations);
}

void TensorsContiguous(benchmark::State& state) {
  const std::vector<std::size_t> sizes = tensor_bytes();
  std::size_t total = 0;
  for (const std::size_t each : sizes) total += each;
  const Mapped memory(total);
  if (!memory.good()) return state.SkipWithError("no address space");
  std::vector<std::span<std::byte>> tensors;
  for (std::size_t at = 0; const std::size_t each : sizes) {
    tensors.push_back(memory.all().subspan(at, each));
    at += each;
  }
  register_tensors(state, tensors);
}
BENCHMARK(TensorsContiguous)->Unit(benchmark::kMillisecond)->UseRealTime();

/// Each in a mapping of its own.
void TensorsScattered(benchmark::State& state) {
  std::vector<Mapped> mappings;
  std::vector<std::span<std::byte>> tensors;
  for (const std::size_t each : tensor_bytes()) {
    const std::size_t pages = (each + page_bytes() - 1) / page_bytes();
    // With a page that nobody may touch behind it, so that the kernel does not make one of two.
    mappings.emplace_back((pages + 1) * page_bytes());
    if (!mappings.back().good()) return state.SkipWithError("no address space");
    ::mprotect(mappings.back().all().data() + pages * page_bytes(), page_bytes(), PROT_NONE);
    tensors.push_back(mappings.back().all().first(each));
  }
  state.counters["mappings"] = static_cast<double>(mappings.size());
  register_tensors(state, tensors);
}
BENCHMARK(TensorsScattered)->Unit(benchmark::kMillisecond)->UseRealTime();

void RegisterAndRelease(benchmark::State& state) {
  constexpr std::size_t kRanges = 64, kKept = 4;
  const Mapped memory(2 * kRanges * page_bytes());
  Device device;
  RegistrationCache cache({.max_bytes = kKept * page_bytes()}, device.hook());
  const auto ranges = apart(memory.all(), kRanges);
  if (!can_find(state, cache, ranges.front())) return;
  using Clock = std::chrono::steady_clock;
  const auto tenth = static_cast<std::uint64_t>(state.max_iterations) / 10;
  const std::size_t before = resident_bytes();
  const Clock::time_point began = Clock::now();
  Clock::time_point first_tenth = began, last_tenth = began;
  std::uint64_t cycles = 0;
  for (auto _ : state) {
    const auto lease = cache.find(ranges[cycles % kRanges]);
    if (!lease) return state.SkipWithError(lease.error().message().c_str());
    ++cycles;
    if (cycles == tenth) first_tenth = Clock::now();
    if (cycles == 9 * tenth) last_tenth = Clock::now();
  }
  const std::chrono::duration<double> first = first_tenth - began, last = Clock::now() - last_tenth;
  state.counters["grown_bytes"] = static_cast<double>(resident_bytes()) - static_cast<double>(before);
  state.counters["last_to_first"] = first.count() > 0 ? last / first : 0;
  state.counters["registrations"] =
      benchmark::Counter(static_cast<double>(device.registered.load()), benchmark::Counter::kAvgIterations);
}
BENCHMARK(RegisterAndRelease)->Iterations(1'000'000)->UseRealTime();

}  // namespace
}  // namespace fairlead::bench
