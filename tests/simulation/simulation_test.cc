// Random schedules: a seed makes a plan (plan.h), which is run and judged. A failing seed repeats exactly, is shrunk,
// and is printed as a test to be kept in scenarios_test.cc:
//   FAIRLEAD_SIMULATION_SEED=N FAIRLEAD_SIMULATION_SCHEDULES=1 FAIRLEAD_SIMULATION_LOG=1
//   build/release/tests/simulation_test
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "fairlead/log.h"
#include "schedule.h"
#include "shrink.h"

namespace fairlead::simulation {
namespace {

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::strtoull(value, nullptr, 10) : otherwise;
}

/// What is wrong with a plan, and the smallest one found that has something wrong with it.
std::string report(const Plan& plan, const std::string& wrong, std::uint64_t seed) {
  std::string text = fmt::format("seed {}: {}\n", seed, wrong);
  if (from_environment("FAIRLEAD_SIMULATION_SHRINK", 1) == 0) return text;
  set_log_level(LogLevel::kOff);
  const Shrunk shrunk = shrink(plan, [](const Plan& smaller) { return !run_plan(smaller).wrong.empty(); });
  return text + fmt::format("shrunk from {} transfers and troubles to {} in {} runs: {}\n{}", size_of(plan),
                            size_of(shrunk.plan), shrunk.runs, run_plan(shrunk.plan).wrong,
                            to_test(shrunk.plan, fmt::format("Seed{}", seed)));
}

std::uint64_t p99(std::vector<std::uint64_t>& times) {
  const auto at = times.begin() + static_cast<std::ptrdiff_t>(times.size() * 99 / 100);
  std::ranges::nth_element(times, at);
  return *at;
}

void run(bool survivable, std::uint64_t schedules) {
  if (std::getenv("FAIRLEAD_SIMULATION_LOG") == nullptr) set_log_level(LogLevel::kOff);
  const std::uint64_t first = from_environment("FAIRLEAD_SIMULATION_SEED", 1);
  schedules = from_environment("FAIRLEAD_SIMULATION_SCHEDULES", schedules);
#ifdef __SANITIZE_ADDRESS__
  schedules = (schedules + 19) / 20;
#endif
  Outcome sum;
  for (std::uint64_t seed = first; seed < first + schedules; ++seed) {
    const Plan plan = make_plan(seed, survivable);
    const Outcome one = run_plan(plan);
    ASSERT_EQ(one.wrong, "") << report(plan, one.wrong, seed);
    sum += one;
  }
  fmt::print(
      "{} schedules, {} sessions ({} lost), {} engines killed, {} control connections broken ({} resumptions of an "
      "end, {} connections moved to another lane): "
      "{} transfers, {} ok ({} bytes), {} failed ({} cancelled "
      "or late, {} refused); {} notifications, {} messages ({} of both were commands), {} atomics, {} failovers, {} "
      "replayed, {} "
      "duplicates dropped, {} bytes "
      "staged, {} over rails, {} operations fenced off, {} packets sent again; the slowest recovery took {} us\n",
      schedules, sum.sessions, sum.lost, sum.killed, sum.hung_up, sum.resumed, sum.moved, sum.transfers, sum.ok,
      sum.bytes, sum.failed, sum.cancelled, sum.refused, sum.notified, sum.messages, sum.commands, sum.atomics,
      sum.failovers, sum.replayed, sum.duplicates, sum.staged_bytes, sum.rail_bytes, sum.stale_on_wire, sum.sent_again,
      sum.slowest_recovery);
  EXPECT_NE(sum.commands, 0u);
  EXPECT_NE(sum.atomics, 0u);
  EXPECT_NE(sum.rail_bytes, 0u);
  EXPECT_NE(sum.moved, 0u);
  // A session that had no other path left: it is told of that, or finds out.
  if (survivable && schedules >= 5000) {
    ASSERT_GT(sum.told_recoveries.size(), 100u);
    ASSERT_GT(sum.silent_recoveries.size(), 10u);
    const std::uint64_t told = p99(sum.told_recoveries), silent = p99(sum.silent_recoveries);
    fmt::print("99 in 100 of {} recoveries that an end was told to begin took at most {} us, of {} others {} us\n",
               sum.told_recoveries.size(), told, sum.silent_recoveries.size(), silent);
    EXPECT_LT(told, 50'000u);
    EXPECT_LT(silent, 1'000'000u);
  }
  for (std::size_t end : {0u, 1u}) {
    fmt::print("{} ends:\n{}", end == 0 ? "active" : "passive", to_text(sum.pairs[end]));
    EXPECT_EQ(surprises(sum.pairs[end], end, survivable && schedules >= 5000), "");
  }
}

TEST(Simulation, SessionsThatHaveAPathLeftKeepTheirPromises) { run(true, 7500); }

TEST(Simulation, SessionsThatLoseEveryPathEndTruly) { run(false, 2500); }

TEST(Simulation, ASeedRepeatsExactly) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    EXPECT_EQ(run_plan(make_plan(seed, true)), run_plan(make_plan(seed, true))) << seed;
  }
}

}  // namespace
}  // namespace fairlead::simulation
