// Times calls that are too short for a clock, many at once, and says how the means of the batches are distributed.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace fairlead::bench {

/// Runs batch() for each iteration of `state`, which is `calls` calls, and reports nanoseconds for each call: counters
/// p50, p99 and min. Say UseManualTime() of the benchmark.
template <typename Batch>
void time_batches(benchmark::State& state, std::size_t calls, const Batch& batch) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> means;
  for (auto _ : state) {
    const Clock::time_point begin = Clock::now();
    batch();
    const std::chrono::duration<double> took = Clock::now() - begin;
    state.SetIterationTime(took.count());
    means.push_back(took.count() * 1e9 / static_cast<double>(calls));
  }
  if (means.empty()) return;  // it gave up before
  std::sort(means.begin(), means.end());
  const auto at = [&](double part) {
    return means[static_cast<std::size_t>(part * static_cast<double>(means.size() - 1))];
  };
  state.counters["ns_min"] = at(0);
  state.counters["ns_p50"] = at(0.5);
  state.counters["ns_p99"] = at(0.99);
}

}  // namespace fairlead::bench
