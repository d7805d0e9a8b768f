// What engines make of machines: made up ones, and those whose XML is here.
#include "topology/engine_plan.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>
#include <vector>

#include "tests/topology/machines.h"

namespace fairlead::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

EnginePlan plan_of(const Machine& machine, const std::string& wish, const EngineUse& use) {
  const Result<PlacementWish> parsed = parse_placement(wish);
  EXPECT_TRUE(parsed) << wish;
  Result<EnginePlan> plan = plan_engine(machine, *parsed, use);
  EXPECT_TRUE(plan) << plan.error().to_string();
  return plan ? *plan : EnginePlan{};
}

Status refusal_of(const Machine& machine, const std::string& wish, const EngineUse& use) {
  return plan_engine(machine, *parse_placement(wish), use).status();
}

std::vector<int> cpus_of(const EnginePlan& plan) {
  std::vector<int> cpus;
  for (const LanePlace& lane : plan.lanes) cpus.push_back(lane.core ? static_cast<int>(lane.pu) : -1);
  return cpus;
}

std::vector<std::size_t> nics_of(const Machine& machine) {
  std::vector<std::size_t> nics;
  for (std::size_t i = 0; i < machine.devices.size(); ++i) {
    if (machine.devices[i].kind == DeviceKind::kNic) nics.push_back(i);
  }
  return nics;
}

TEST(PlanEngine, ChoosesNothingOnOneNode) {
  const Result<Machine> machine = topology::read_synthetic("package:1 core:4 pu:2");
  ASSERT_TRUE(machine);
  const EnginePlan plan = plan_of(*machine, "auto", {.lanes = 3});
  EXPECT_THAT(cpus_of(plan), ElementsAre(-1, -1, -1));
  EXPECT_FALSE(plan.pool);
  EXPECT_THAT(plan.lanes.front().reason, HasSubstr("one NUMA node"));
  EXPECT_THAT(to_string(*machine, plan), HasSubstr("no lane is pinned (one NUMA node"));
}

TEST(PlanEngine, ChoosesNothingWhereNobodySaysWhatIsNear) {
  Machine machine = make_machine(2, 2);
  EXPECT_THAT(plan_of(machine, "auto", {.lanes = 1}).lanes[0].reason, HasSubstr("no NIC is in use"));
  const std::size_t nic = add_nic(&machine, 0, 25);
  machine.devices[nic].cores = {0, 1, 2, 3};
  const EnginePlan plan = plan_of(machine, "auto", {.lanes = 1, .nics = {nic}});
  EXPECT_THAT(cpus_of(plan), ElementsAre(-1));
  EXPECT_THAT(plan.lanes[0].reason, HasSubstr("nobody says"));
  EXPECT_FALSE(plan.pool);
}

TEST(PlanEngine, ChoosesNothingForWhoMayUseOneNodeAlone) {
  Machine machine = make_machine(2, 2);
  const std::size_t nic = add_nic(&machine, 1, 25);
  machine.cores[2].usable_pus.clear();
  machine.cores[3].usable_pus.clear();
  const EnginePlan plan = plan_of(machine, "auto", {.lanes = 1, .nics = {nic}});
  EXPECT_THAT(cpus_of(plan), ElementsAre(-1));
  EXPECT_THAT(plan.lanes[0].reason, HasSubstr("cores of one NUMA node"));
}

TEST(PlanEngine, PutsLanesAndPoolBesideTheNicInUse) {
  const Machine machine = read_machine("far-nics");
  const EnginePlan plan = plan_of(machine, "auto", {.lanes = 3, .nics = nics_of(machine)});
  EXPECT_THAT(cpus_of(plan), ElementsAre(8, 9, 10));
  ASSERT_TRUE(plan.pool);
  EXPECT_EQ(machine.memories[*plan.pool].os_index, 1U);
  EXPECT_THAT(plan.lanes[0].reason, HasSubstr("beside mlx5_0"));
  EXPECT_THAT(to_string(machine, plan),
              HasSubstr("pool on numa1 (the most can be sent from there: on the same socket"));
}

// Sub-NUMA clustering, and memory for each whole socket, as CXL has it.
TEST(PlanEngine, PutsThePoolIntoMemoryOfFewCores) {
  const Result<Machine> read = topology::read_synthetic("package:2 [numa] group:2 [numa] core:2 pu:1");
  ASSERT_TRUE(read) << read.error().to_string();
  for (const std::vector<std::size_t>& beside : {std::vector<std::size_t>{2, 3}, {0, 1, 2, 3}}) {
    Machine machine = *read;
    const auto memory = std::ranges::find(machine.memories, beside, &Memory::cores);
    ASSERT_NE(memory, machine.memories.end());
    const std::size_t nic = add_nic(&machine, static_cast<std::size_t>(memory - machine.memories.begin()), 10);
    const EnginePlan plan = plan_of(machine, "auto", {.lanes = 1, .nics = {nic}});
    ASSERT_TRUE(plan.pool);
    EXPECT_EQ(machine.memories[*plan.pool].cores.size(), 2U) << beside.size();
    EXPECT_TRUE(std::ranges::includes(beside, machine.memories[*plan.pool].cores)) << beside.size();
    ASSERT_TRUE(plan.lanes[0].core);
    EXPECT_NE(std::ranges::count(beside, *plan.lanes[0].core), 0);
  }
}

TEST(PlanEngine, LooksAtNoNicThatIsNotInUse) {
  Machine machine = make_machine(2, 2);
  add_nic(&machine, 0, 400);
  const std::size_t far = add_nic(&machine, 1, 25);
  const EnginePlan plan = plan_of(machine, "auto", {.lanes = 1, .nics = {far}});
  EXPECT_THAT(cpus_of(plan), ElementsAre(2));
  EXPECT_EQ(plan.pool, 1U);
  ASSERT_EQ(plan.shares.size(), 1U);
  EXPECT_NEAR(plan.shares[0].rate, 25e9, 1e6);
}

TEST(PlanEngine, SpreadsLanesAsTheNicsCarry) {
  Machine machine = make_machine(2, 4);
  const std::size_t slow = add_nic(&machine, 0, 5), fast = add_nic(&machine, 1, 14);
  machine.memories[0].bandwidth = machine.memories[1].bandwidth = 100e9;
  const EnginePlan plan = plan_of(machine, "auto", {.lanes = 4, .nics = {slow, fast}});
  EXPECT_EQ(plan.pool, 1U) << "both can send 19 GB/s, from the second node less of it across the sockets";
  EXPECT_THAT(cpus_of(plan), ElementsAre(4, 5, 0, 6));
  ASSERT_EQ(plan.shares.size(), 2U);
  EXPECT_NEAR(plan.shares[0].rate, 5e9, 1e6);
  EXPECT_NEAR(plan.shares[1].rate, 14e9, 1e6);
}

TEST(PlanEngine, SharesAreOfWhatIsLeftOfASharedEdge) {
  Machine machine = make_machine(1, 2);
  machine.memories[0].bandwidth = 100e9;
  const std::size_t a = add_nic(&machine, 0, 40), b = add_nic(&machine, 0, 40);
  machine.devices[b].bridge = machine.devices[a].bridge;  // one root port for both
  const EnginePlan plan = plan_of(machine, "auto", {.lanes = 1, .nics = {a, b}});
  ASSERT_EQ(plan.shares.size(), 2U);
  EXPECT_NEAR(plan.shares[0].rate, plan.shares[1].rate, 1e6);
}

TEST(PlanEngine, LeavesCoresThatAreBusyAndThoseThatAreIsolated) {
  Machine machine = make_machine(2, 4);
  const std::size_t nic = add_nic(&machine, 1, 25);
  machine.cores[5].isolated = true;
  EnginePlan plan = plan_of(machine, "auto", {.lanes = 2, .nics = {nic}, .busy_cpus = {4}});
  EXPECT_THAT(cpus_of(plan), ElementsAre(6, 7));
  // None is free beside it: rather a far core than one that is shared.
  plan = plan_of(machine, "auto", {.lanes = 1, .nics = {nic}, .busy_cpus = {4, 6, 7}});
  EXPECT_THAT(cpus_of(plan), ElementsAre(0));
  EXPECT_FALSE(plan.lanes[0].shared);
  // None is free at all.
  plan = plan_of(machine, "auto", {.lanes = 1, .nics = {nic}, .busy_cpus = {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 6, 7, 7}});
  EXPECT_THAT(cpus_of(plan), ElementsAre(6));
  EXPECT_TRUE(plan.lanes[0].shared);
  EXPECT_THAT(plan.remarks, ElementsAre(HasSubstr("fewer free cores")));
}

TEST(PlanEngine, TakesTheNodeThatIsNamed) {
  Machine machine = make_machine(2, 2);
  const EnginePlan plan = plan_of(machine, "node=1", {.lanes = 3});
  EXPECT_THAT(cpus_of(plan), ElementsAre(2, 3, 2));
  EXPECT_TRUE(plan.lanes[0].shared);
  EXPECT_FALSE(plan.lanes[1].shared);
  EXPECT_EQ(plan.pool, 1U);
  Status refused = refusal_of(machine, "node=7", {});
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("NUMA nodes 0-1"));
  machine.cores[2].usable_pus.clear();
  machine.cores[3].usable_pus.clear();
  refused = refusal_of(machine, "node=1", {});
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("its CPUs are 0-1"));
}

TEST(PlanEngine, ChoosesTheFirstWhereNothingCanBeSentYet) {
  Machine machine = make_machine(2, 2);
  const std::size_t nic = add_nic(&machine, 0, 25);
  machine.devices[nic].rate_is_down = true;
  EXPECT_EQ(plan_of(machine, "auto", {.lanes = 1, .nics = {nic}}).pool, 0U);
}

TEST(PlanEngine, ANodeWithoutMemoryIsNoPlace) {
  Machine machine = make_machine(2, 2);
  machine.memories[1].bytes = 0;
  const Status refused = refusal_of(machine, "node=1", {});
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("without memory"));
  EXPECT_EQ(plan_of(machine, "node=0", {.lanes = 1}).pool, 0U);
}

TEST(PlanEngine, TakesTheCoresThatAreNamed) {
  Machine machine = make_machine(2, 2);
  EnginePlan plan = plan_of(machine, "cores=2-3", {.lanes = 2});
  EXPECT_THAT(cpus_of(plan), ElementsAre(2, 3));
  EXPECT_EQ(plan.pool, 1U);
  plan = plan_of(machine, "cores=0,3", {.lanes = 3});
  EXPECT_THAT(cpus_of(plan), ElementsAre(0, 3, 0));
  EXPECT_TRUE(plan.lanes[0].shared);
  EXPECT_FALSE(plan.lanes[1].shared);
  EXPECT_FALSE(plan.pool) << "they are of both nodes";
  const Status refused = refusal_of(machine, "cores=1,4", {});
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("CPU 4 is none that this process may use, which are 0-3"));
}

TEST(PlanEngine, DoesNothingWhereItIsOff) {
  Machine machine = make_machine(2, 2);
  const std::size_t nic = add_nic(&machine, 1, 25);
  const EnginePlan plan = plan_of(machine, "off", {.lanes = 2, .nics = {nic}});
  EXPECT_THAT(cpus_of(plan), ElementsAre(-1, -1));
  EXPECT_FALSE(plan.pool);
  EXPECT_EQ(plan.shares[0].rate, 0);
}

TEST(PlanEngine, SaysWhereTheCgroupAllowsLessThanLanesTake) {
  Machine machine = make_machine(2, 4);
  machine.cpu_quota = 1.5;
  EXPECT_THAT(plan_of(machine, "node=0", {.lanes = 1}).remarks, IsEmpty());
  EXPECT_THAT(plan_of(machine, "node=0", {.lanes = 2}).remarks, ElementsAre(HasSubstr("1.5 processors")));
}

// Whatever the machine: a core of its own for each lane while there are as many, no more shares than what is in use.
TEST(PlanEngine, HoldsOnEveryMachineThatIsHere) {
  for (const char* const name : {"4-socket-pci", "aws-g5.48xl", "aws-p4d.24xl", "aws-p5en.48xl", "far-nics",
                                 "nvidia-dgx2", "one-node-vm", "vm-vnuma"}) {
    const Machine machine = read_machine(name);
    std::size_t usable = 0;
    for (const Core& core : machine.cores) usable += core.usable_pus.empty() ? 0 : 1;
    const EngineUse use{.lanes = std::min<std::size_t>(8, usable), .nics = nics_of(machine)};
    const EnginePlan plan = plan_of(machine, "auto", use);
    std::set<std::size_t> cores;
    std::size_t pinned = 0;
    for (const LanePlace& lane : plan.lanes) {
      EXPECT_FALSE(lane.reason.empty()) << name;
      if (!lane.core) continue;
      ++pinned;
      cores.insert(*lane.core);
      EXPECT_FALSE(lane.shared) << name;
    }
    EXPECT_TRUE(pinned == 0 || pinned == use.lanes) << name;
    EXPECT_EQ(cores.size(), pinned) << name;
    EXPECT_EQ(plan.pool.has_value(), pinned != 0) << name;
    EXPECT_EQ(plan.shares.size(), use.nics.size()) << name;
    double sum = 0;
    for (const NicShare& share : plan.shares) sum += share.rate;
    EXPECT_EQ(sum > 0, !use.nics.empty()) << name;
  }
}

}  // namespace
}  // namespace fairlead::topology
