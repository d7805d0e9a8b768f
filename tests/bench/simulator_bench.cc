// What one schedule of the engine's simulator (tests/simulation) costs, troubles and judging included: how many a night
// has room for.
//
//   fairlead-bench-simulator --benchmark_enable_random_interleaving=true --benchmark_repetitions=9
//   --benchmark_min_time=0.5
#include <benchmark/benchmark.h>

#include "fairlead/log.h"
#include "tests/simulation/schedule.h"

namespace fairlead::simulation {
namespace {

// Seed after seed, as the test does: schedules differ by far more than runs of one.
void schedules(benchmark::State& state, bool survivable) {
  set_log_level(LogLevel::kOff);
  std::uint64_t seed = 0, transfers = 0;
  for (auto _ : state) {
    const Outcome outcome = run_plan(make_plan(++seed, survivable));
    if (!outcome.wrong.empty()) state.SkipWithError(outcome.wrong.c_str());
    transfers += outcome.transfers;
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(transfers));
}
BENCHMARK_CAPTURE(schedules, WithAPathLeft, true);
BENCHMARK_CAPTURE(schedules, WithoutAPath, false);

}  // namespace
}  // namespace fairlead::simulation
