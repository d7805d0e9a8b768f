// Random programs on command channels, and whatever may be killed is killed in the middle of them. A failing seed
// repeats exactly:
//   FAIRLEAD_SIMULATION_SEED=N FAIRLEAD_SIMULATION_SCHEDULES=1 build/release/tests/command_simulation_test
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "command_run.h"
#include "fairlead/log.h"

namespace fairlead::simulation {
namespace {

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::strtoull(value, nullptr, 10) : otherwise;
}

constexpr const char* kNames[CommandTrouble::kKinds] = {
    "cut", "stall", "hang up", "freeze", "garble", "lose", "close", "kill client", "kill lane", "kill server", "drop"};

/// What is wrong with a plan, and which of its troubles it takes.
std::string report(CommandPlan plan, const std::string& wrong, std::uint64_t seed) {
  std::string text = fmt::format("seed {}: {}\n", seed, wrong);
  for (std::size_t i = plan.troubles.size(); i-- != 0;) {
    CommandPlan smaller = plan;
    smaller.troubles.erase(smaller.troubles.begin() + static_cast<std::ptrdiff_t>(i));
    if (!run_commands(smaller).wrong.empty()) plan = std::move(smaller);
  }
  text += fmt::format("with these alone: {}\n", run_commands(plan).wrong);
  for (const CommandTrouble& t : plan.troubles) {
    text += fmt::format("  {} after {} actions and {} us, client {}, end {}, for {} us, notices {} and {} us\n",
                        kNames[static_cast<std::size_t>(t.kind)], t.actions, t.delay.count(), t.client, t.end,
                        t.time.count(), t.notice[0].count(), t.notice[1].count());
  }
  return text;
}

class CommandSimulation : public testing::Test {
 protected:
  CommandSimulation() {
    if (std::getenv("FAIRLEAD_SIMULATION_LOG") == nullptr) set_log_level(LogLevel::kOff);
  }

  /// Each seed's plan, up to the first whose outcome is wrong.
  template <typename Done>
  static void run_plans(CommandPlan (*make)(std::uint64_t), std::uint64_t first, std::uint64_t plans, Done done) {
    for (std::uint64_t seed = first; seed < first + plans; ++seed) {
      SCOPED_TRACE(seed);
      const CommandPlan plan = make(seed);
      const CommandOutcome one = run_commands(plan);
      ASSERT_EQ(one.wrong, "") << report(plan, one.wrong, seed);
      done(plan, one);
    }
  }
};

TEST_F(CommandSimulation, WhateverIsKilledTheResultIsTheSameOrIsSaidToBeNone) {
  const std::uint64_t first = from_environment("FAIRLEAD_SIMULATION_SEED", 1);
  std::uint64_t plans = from_environment("FAIRLEAD_SIMULATION_SCHEDULES", 1000);
#ifdef __SANITIZE_ADDRESS__
  plans = (plans + 19) / 20;
#endif
  CommandOutcome sum;
  run_plans(&make_command_plan, first, plans, [&](const CommandPlan&, const CommandOutcome& one) { sum += one; });
  if (HasFatalFailure()) return;
  std::string troubles;
  for (std::size_t i = 0; i < CommandTrouble::kKinds; ++i) {
    troubles += fmt::format("{}{} {}", i == 0 ? "" : ", ", kNames[i], sum.troubles[i]);
  }
  fmt::print(
      "{} plans, {} sessions ({} lost, {} refused, {} lived through trouble, {} resumptions, {} recoveries of a path, "
      "{} "
      "times that one went on over another peer): "
      "{} "
      "commands, {} failures, {} recoveries of a channel, {} runs and {} updates of graphs, {} allocations at places, "
      "{} copies "
      "across devices; "
      "{}\n",
      plans, sum.sessions, sum.lost, sum.refused, sum.lived_through, sum.resumed, sum.failovers, sum.gone_on,
      sum.commands, sum.failures, sum.recovered, sum.graphs_run, sum.graphs_updated, sum.placed, sum.across, troubles);
  if (plans < 500) return;  // too few for all of it
  for (std::size_t i = 0; i < CommandTrouble::kKinds; ++i) EXPECT_NE(sum.troubles[i], 0u) << kNames[i];
  EXPECT_NE(sum.lost, 0u);
  EXPECT_NE(sum.lived_through, 0u);
  EXPECT_NE(sum.resumed, 0u);
  EXPECT_NE(sum.failovers, 0u);
  EXPECT_NE(sum.gone_on, 0u);
  EXPECT_NE(sum.recovered, 0u);
  EXPECT_NE(sum.graphs_run, 0u);
  EXPECT_NE(sum.graphs_updated, 0u);
  EXPECT_NE(sum.placed, 0u);
  EXPECT_NE(sum.across, 0u);
}

TEST_F(CommandSimulation, ProgramsGoOnWhereverTheirConnectionsAreDropped) {
  const std::uint64_t first = from_environment("FAIRLEAD_SIMULATION_SEED", 1);
  std::uint64_t plans = from_environment("FAIRLEAD_SIMULATION_SCHEDULES", 300);
#ifdef __SANITIZE_ADDRESS__
  plans = (plans + 9) / 10;
#endif
  CommandOutcome sum;
  run_plans(&make_dropping_plan, first, plans, [&](const CommandPlan& plan, const CommandOutcome& one) {
    EXPECT_EQ(one.sessions, plan.programs.size());
    sum += one;
  });
  if (HasFatalFailure()) return;
  fmt::print("{} plans, {} sessions, {} times that one went on over another peer\n", plans, sum.sessions, sum.gone_on);
  EXPECT_EQ(sum.lost, 0u);
  if (plans < 30) return;
  EXPECT_GT(sum.gone_on, sum.sessions);
}

TEST_F(CommandSimulation, NothingIsLostWhereNothingHappens) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    CommandPlan plan = make_command_plan(seed);
    plan.troubles.clear();
    const CommandOutcome outcome = run_commands(plan);
    ASSERT_EQ(outcome.wrong, "") << "seed " << seed;
    EXPECT_EQ(outcome.sessions, plan.programs.size());
    EXPECT_EQ(outcome.lost, 0u);
  }
}

TEST_F(CommandSimulation, ASeedRepeatsExactly) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    EXPECT_EQ(run_commands(make_command_plan(seed)), run_commands(make_command_plan(seed))) << seed;
  }
}

}  // namespace
}  // namespace fairlead::simulation
