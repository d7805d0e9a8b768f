#include "topology/plan.h"

#include <gmock/gmock.h>

#include "tests/topology/machines.h"
#include "topology/render.h"

namespace fairlead::topology {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Plan plan_of(const Machine& machine, const std::vector<Pair>& pairs, const BandwidthOverrides& overrides = {}) {
  return make_plan(machine, build_graph(machine, BandwidthTable(overrides)), pairs);
}

std::vector<std::string> names(const Machine& machine, const Placement& placement) {
  std::vector<std::string> list;
  for (const NicUse& nic : placement.nics) list.push_back(machine.devices[nic.device].name);
  return list;
}

TEST(MakePlan, StaysOnTheSocketWhereItsNicsCarryAll) {
  Machine machine = make_machine(2, 4);
  machine.memories[0].bandwidth = machine.memories[1].bandwidth = 20e9;
  add_nic(&machine, 0, 25);
  add_nic(&machine, 1, 25);
  const Plan plan = plan_of(machine, memory_pairs(machine, "peer"));
  EXPECT_THAT(names(machine, plan.placements[0]), ::testing::ElementsAre("nic0"));
  EXPECT_THAT(names(machine, plan.placements[1]), ::testing::ElementsAre("nic1"));
  EXPECT_EQ(plan.placements[0].nics[0].lane.core, 0u);
  EXPECT_EQ(plan.placements[1].nics[0].lane.core, 4u);
  EXPECT_THAT(plan.placements[0].passed[0].reason, HasSubstr("across a link between sockets"));
  EXPECT_THAT(plan.placements[0].nics[0].limit, HasSubstr("the memory of numa0, 20.0 GB/s"));
  EXPECT_FALSE(plan.placements[0].nics[0].assumed);
}

TEST(MakePlan, CrossesWhereThatCarriesMore) {
  Machine machine = make_machine(2, 4);
  add_nic(&machine, 0, 10);
  add_nic(&machine, 1, 40);
  const Plan plan = plan_of(machine, {{{.gpu = false, .index = 0}, "peer"}}, {{"socket", 15e9}});
  EXPECT_NEAR(plan.placements[0].rate, 25e9, 1e5);
  EXPECT_THAT(names(machine, plan.placements[0]), ::testing::ElementsAre("nic1", "nic0"));  // the widest way first
  EXPECT_THAT(plan.placements[0].nics[0].reason, HasSubstr("across"));
  EXPECT_THAT(plan.placements[0].nics[0].limit, HasSubstr("15.0 GB/s (measured: --bandwidth)"));
}

TEST(MakePlan, AGpuTakesTheNicsOfItsSwitch) {
  const Machine machine = read_machine("aws-p5en.48xl");
  const Plan plan = plan_of(machine, gpu_pairs(machine, "peer"));
  ASSERT_EQ(plan.placements.size(), 8u);
  std::map<std::size_t, int> lanes;
  for (const Placement& placement : plan.placements) {
    EXPECT_NEAR(placement.rate, 50e9, 1e6);  // four NICs of 200 Gb/s for two GPUs
    EXPECT_NEAR(placement.alone, 63.015e9, 1e7);
    EXPECT_EQ(placement.nics.size(), 2u);
    const Device& gpu = machine.devices[placement.pair.endpoint.index];
    for (const NicUse& nic : placement.nics) {
      EXPECT_EQ(packages_of(machine, machine.devices[nic.device].cores), packages_of(machine, gpu.cores));
      EXPECT_THAT(nic.reason, HasSubstr("behind the same PCIe switch"));
      EXPECT_TRUE(nic.assumed);
      ++lanes[*nic.lane.core];
    }
    EXPECT_TRUE(placement.pool);
  }
  for (const auto& [core, count] : lanes) EXPECT_EQ(count, 1) << "core " << core;
}

TEST(MakePlan, FiguresOfTheUserChangeIt) {
  const Machine machine = read_machine("aws-p4d.24xl");
  const std::vector<Pair> pairs = {{*find_endpoint(machine, "gpu0"), "peer"}};
  const double before = plan_of(machine, pairs).placements[0].rate;
  EXPECT_NEAR(before, 12.5e9 + 12.5e9 + 6e9, 1e6);
  EXPECT_NEAR(plan_of(machine, pairs, {{"socket", 3e9}}).placements[0].rate, before - 3e9, 1e6);
  const Plan plan = plan_of(machine, pairs, {{"nic", 1e9}});
  EXPECT_NEAR(plan.placements[0].rate, 4e9, 1e6);
  EXPECT_FALSE(plan.placements[0].nics[0].assumed);
}

TEST(MakePlan, WhatAnAssumedRateLeavesIsAssumed) {
  const Machine machine = read_machine("far-nics");
  const auto is_assumed = [&machine](const BandwidthOverrides& overrides) {
    const Plan plan = plan_of(machine, memory_pairs(machine, "peer"), overrides);
    EXPECT_EQ(names(machine, plan.placements[1]), (std::vector<std::string>{"mlx5_0", "mlx5_1"}));
    return plan.placements[1].nics[0].assumed;  // beside what crosses from the other socket
  };
  EXPECT_TRUE(is_assumed({}));
  EXPECT_FALSE(is_assumed({{"socket", 22e9}}));
}

TEST(MakePlan, ExplainsEveryNic) {
  for (const char* const name : {"4-socket-pci", "aws-p4d.24xl", "aws-p5en.48xl", "far-nics", "vm-vnuma"}) {
    const Machine machine = read_machine(name);
    for (const std::vector<Pair>& pairs : {memory_pairs(machine, "peer"), gpu_pairs(machine, "peer")}) {
      for (const Placement& placement : plan_of(machine, pairs).placements) {
        EXPECT_EQ(placement.nics.size() + placement.passed.size(), count_of(machine, DeviceKind::kNic)) << name;
        for (const NicUse& nic : placement.nics) {
          EXPECT_FALSE(nic.reason.empty() || nic.limit.empty() || nic.lane.reason.empty()) << name;
          EXPECT_GT(nic.rate, 0) << name;
          EXPECT_GE(nic.width * (1 + 1e-6), nic.routes.front().rate) << name;
        }
        for (const NicPassed& nic : placement.passed) EXPECT_FALSE(nic.reason.empty()) << name;
        EXPECT_FALSE(placement.pool_reason.empty()) << name;
      }
    }
  }
}

TEST(MakePlan, LeavesAloneWhatMayNotBeUsed) {
  Machine machine = make_machine(2, 2);
  add_nic(&machine, 0, 10);
  machine.memories[0].allowed = false;
  machine.cores[0].usable_pus.clear();
  machine.devices.push_back({.kind = DeviceKind::kGpu, .name = "gpu0", .cores = machine.memories[0].cores});
  EXPECT_EQ(memory_pairs(machine, "peer").size(), 1u);
  const Plan plan = plan_of(machine, gpu_pairs(machine, "peer"));
  EXPECT_EQ(plan.placements[0].pool, 1u);
  EXPECT_EQ(plan.placements[0].nics[0].lane.core, 1u);
  machine.memories[1].allowed = false;
  for (Core& core : machine.cores) core.usable_pus.clear();
  const Plan barred = plan_of(machine, gpu_pairs(machine, "peer"));
  EXPECT_FALSE(barred.placements[0].pool);
  EXPECT_FALSE(barred.placements[0].nics[0].lane.core);
  EXPECT_THAT(barred.remarks, Contains(HasSubstr("leave no core")));
}

TEST(MakePlan, OneNodeSaysSoOnce) {
  Machine machine = make_machine(1, 2);
  add_nic(&machine, 0, 10);
  const Plan plan = plan_of(machine, memory_pairs(machine, "peer"));
  EXPECT_EQ(std::count_if(plan.remarks.begin(), plan.remarks.end(),
                          [](const std::string& remark) { return remark.starts_with("One NUMA node"); }),
            1);
  EXPECT_EQ(plan.placements[0].nics[0].reason, "on the only socket");
}

TEST(MakePlan, ANicThatIsDownCarriesNothing) {
  Machine machine = make_machine(1, 1);
  machine.devices[add_nic(&machine, 0, 10)].rate_is_down = true;
  const Plan plan = plan_of(machine, memory_pairs(machine, "peer"));
  EXPECT_EQ(plan.placements[0].rate, 0);
  EXPECT_EQ(plan.placements[0].passed[0].reason, "its ports are down");
}

TEST(MakePlan, SaysWhenTheQuotaIsSmallerThanTheLanes) {
  Machine machine = make_machine(1, 4);
  machine.memories[0].bandwidth = 100e9;
  add_nic(&machine, 0, 10);
  add_nic(&machine, 0, 10);
  machine.cpu_quota = 1.5;
  EXPECT_THAT(plan_of(machine, memory_pairs(machine, "peer")).remarks, Contains(HasSubstr("1.5 processors' worth")));
  machine.cpu_quota = 2;
  EXPECT_THAT(plan_of(machine, memory_pairs(machine, "peer")).remarks,
              ::testing::Not(Contains(HasSubstr("processors"))));
}

TEST(MakePlan, OfNoPairsIsEmpty) {
  const Machine machine = make_machine(1, 1);
  EXPECT_THAT(plan_of(machine, {}).placements, IsEmpty());
}

TEST(FindEndpoint, ByNameAndAddress) {
  const Machine machine = read_machine("aws-p4d.24xl");
  EXPECT_EQ(find_endpoint(machine, "numa1")->index, 1u);
  EXPECT_TRUE(find_endpoint(machine, "gpu0")->gpu);
  EXPECT_EQ(find_endpoint(machine, "0000:10:1c.0")->index, find_endpoint(machine, "gpu0")->index);
  for (const char* const name : {"", "numa7", "gpu8", "rdmap16s27", "NUMA0"}) {
    EXPECT_EQ(find_endpoint(machine, name).status().code(), Code::kNotFound) << name;
  }
  EXPECT_THAT(find_endpoint(machine, "x").status().message(), HasSubstr("numa0, numa1, gpu0"));
}

// This machine's plan cannot be known beforehand; what must hold of any can.
TEST(MakePlan, OfThisMachineIsSound) {
  const Result<Machine> machine = read_this_machine();
  ASSERT_TRUE(machine);
  const MachineGraph made = build_graph(*machine, BandwidthTable());
  const std::vector<Pair> pairs = memory_pairs(*machine, "peer");
  const Plan plan = make_plan(*machine, made, pairs);
  ASSERT_EQ(plan.placements.size(), pairs.size());
  for (const Placement& placement : plan.placements) {
    EXPECT_TRUE(placement.pool);
    EXPECT_LE(placement.rate, placement.alone * (1 + 1e-6));
    for (const NicUse& nic : placement.nics) {
      ASSERT_TRUE(nic.lane.core);
      EXPECT_THAT(machine->cores[*nic.lane.core].usable_pus, Contains(nic.lane.pu));
    }
  }
  EXPECT_THAT(render_tree(*machine, made), HasSubstr("numa"));
  EXPECT_THAT(render_svg(*machine, made, std::array{&plan}), HasSubstr("</svg>"));
}

}  // namespace
}  // namespace fairlead::topology
