#include "topology/graph.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <vector>

#include "tests/topology/machines.h"
#include "topology/bandwidth_table.h"

namespace fairlead::topology {
namespace {

using ::testing::HasSubstr;

std::size_t count(const Graph& graph, EdgeKind kind) {
  return static_cast<std::size_t>(std::count_if(graph.edges().begin(), graph.edges().end(),
                                                [kind](const Edge& edge) { return edge.kind == kind; }));
}

const Edge* edge_between(const Graph& graph, std::size_t a, std::size_t b) {
  for (const std::size_t edge : graph.edges_at(a)) {
    if (graph.other_end(edge, a) == b) return &graph.edges()[edge];
  }
  return nullptr;
}

TEST(Bandwidths, AreReadStrictly) {
  const Result<BandwidthOverrides> read = parse_bandwidths("mlx5_0=12.5,socket=20,mlx5_0=25");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->at(0), (std::pair<std::string, double>("mlx5_0", 12.5e9)));
  EXPECT_EQ(read->size(), 3u);
  for (const char* const text :
       {"", "=1", "a", "a=", "a=0", "a=-1", "a=nan", "a=inf", "a=1e9", "a=1x", "a=1,", ",a=1", "a=1,,b=2"}) {
    EXPECT_EQ(parse_bandwidths(text).status().code(), Code::kInvalidArgument) << text;
  }
}

TEST(Bandwidths, OfWhatIsNotThereAreRefusedWithWhatIs) {
  Machine machine = make_machine(1, 1);
  add_nic(&machine, 0, 10);
  const Status status = BandwidthTable(*parse_bandwidths("mlx5_9=1")).check(machine);
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("'mlx5_9'"));
  EXPECT_THAT(status.message(), HasSubstr("memory, nic, nic0, numa0, pcie, socket"));
  EXPECT_TRUE(BandwidthTable(*parse_bandwidths("nic0=1,numa0=2,socket=3,memory=4,pcie=5,nic=6")).check(machine).ok());
}

TEST(Bandwidths, ComeFromTheUserThenTheMachineThenTheTable) {
  Machine machine = make_machine(2, 1);
  Device nic{.kind = DeviceKind::kNic, .name = "mlx5_0", .bus_id = "0000:01:00.0", .vendor = 0x15b3, .device = 0x1021};
  EXPECT_EQ(BandwidthTable().nic(nic).bytes_per_second, 50e9);
  EXPECT_EQ(BandwidthTable().nic(nic).origin, Origin::kAssumed);
  EXPECT_EQ(BandwidthTable().link(nic).source, "PCIe 5.0 x16");  // the narrowest that carries 50 GB/s
  EXPECT_EQ(BandwidthTable(*parse_bandwidths("nic=3")).nic(nic).bytes_per_second, 3e9);
  EXPECT_EQ(BandwidthTable(*parse_bandwidths("pcie=8")).link(nic).bytes_per_second, 8e9);
  nic.rate = 25e9;
  nic.link = 31e9;
  EXPECT_EQ(BandwidthTable(*parse_bandwidths("nic=3")).nic(nic).bytes_per_second, 25e9);
  EXPECT_EQ(BandwidthTable().nic(nic).origin, Origin::kAdvertised);
  EXPECT_EQ(BandwidthTable(*parse_bandwidths("pcie=8")).link(nic).bytes_per_second, 31e9);
  const BandwidthTable given(*parse_bandwidths("mlx5_0=12,mlx5_0=13,0000:01:00.0=14"));
  EXPECT_EQ(given.nic(nic).bytes_per_second, 13e9);
  EXPECT_EQ(given.nic(nic).origin, Origin::kMeasured);
  EXPECT_EQ(given.link(nic).bytes_per_second, 14e9);
  EXPECT_EQ(to_string(given.nic(nic)), "13.0 GB/s (measured: --bandwidth)");
}

TEST(Bandwidths, OfMemoryAndSocketsFollowTheProcessor) {
  Machine machine = make_machine(2, 2);
  for (Package& package : machine.packages) {
    package.vendor = "GenuineIntel";
    package.family = 6;
    package.model_number = 143;
  }
  const BandwidthTable table;
  EXPECT_EQ(table.socket(machine, 0).bytes_per_second, 22e9);
  EXPECT_DOUBLE_EQ(table.memory(machine, 0).bytes_per_second, 307.2e9);
  EXPECT_THAT(table.memory(machine, 0).source, HasSubstr("Sapphire Rapids"));
  machine.memories.push_back(machine.memories[0]);  // two nodes of one socket share its channels
  EXPECT_DOUBLE_EQ(table.memory(machine, 0).bytes_per_second, 153.6e9);
  machine.memories[0].bandwidth = 99e9;
  EXPECT_EQ(table.memory(machine, 0).bytes_per_second, 99e9);
  EXPECT_EQ(table.memory(machine, 0).origin, Origin::kAdvertised);
}

TEST(BuildGraph, ANicWithTwoFacesCountsOnceAndOnlyRdmaCarriesWhereThereIsSome) {
  const Machine machine = read_machine("vm-vnuma");
  ASSERT_EQ(count_of(machine, DeviceKind::kNic), 2u);
  const MachineGraph made = build_graph(machine, BandwidthTable());
  EXPECT_EQ(count(made.graph, EdgeKind::kPort), 1u);
  EXPECT_EQ(machine.devices[0].name, "eth0");
  EXPECT_FALSE(made.carries[0]);
  EXPECT_TRUE(made.carries[1]);
}

TEST(BuildGraph, NumaNodesOfOneSocketHaveDomains) {
  const Machine machine = read_machine("vm-vnuma");
  const MachineGraph made = build_graph(machine, BandwidthTable());
  EXPECT_EQ(count(made.graph, EdgeKind::kMesh), 2u);
  EXPECT_EQ(count(made.graph, EdgeKind::kSocket), 0u);
  const auto domain = made.graph.find(NodeKind::kDomain, 1);
  ASSERT_TRUE(domain);
  EXPECT_NE(edge_between(made.graph, *domain, made.memories[1]), nullptr);
  EXPECT_NE(edge_between(made.graph, *domain, made.bridges[1]), nullptr);  // the NIC's host bridge
}

// Beside memory for the whole socket, as CXL has it, a NIC of some of its cores stays theirs.
TEST(BuildGraph, ADeviceIsOfTheSmallestDomainThatHasItsCores) {
  const Result<Machine> read = read_synthetic("package:2 [numa] group:2 [numa] core:2 pu:1");
  ASSERT_TRUE(read) << read.error().to_string();
  Machine machine = *read;
  const auto memory_of = [&machine](const std::vector<std::size_t>& cores) {
    const auto found = std::ranges::find(machine.memories, cores, &Memory::cores);
    EXPECT_NE(found, machine.memories.end());
    return static_cast<std::size_t>(found - machine.memories.begin());
  };
  const std::size_t part = memory_of({2, 3}), whole = memory_of({0, 1, 2, 3});
  const std::size_t near = add_nic(&machine, part, 25), any = add_nic(&machine, whole, 25);
  ASSERT_EQ(machine.devices[near].cores, (std::vector<std::size_t>{2, 3}));
  const MachineGraph made = build_graph(machine, BandwidthTable());
  const auto beside = [&made](std::size_t memory) {
    return made.graph.other_end(made.graph.edges_at(made.memories[memory]).front(), made.memories[memory]);
  };
  const std::size_t bridge = made.bridges[*machine.devices[near].bridge];
  EXPECT_NE(edge_between(made.graph, beside(part), bridge), nullptr);
  EXPECT_EQ(edge_between(made.graph, beside(whole), bridge), nullptr);
  EXPECT_NE(edge_between(made.graph, made.packages[0], made.bridges[*machine.devices[any].bridge]), nullptr);
}

// It did where each pair of sockets went through all pairs of memories.
TEST(BuildGraph, OfManySocketsTakesNoMinutes) {
  constexpr std::size_t kSockets = 256;
  Machine machine = make_machine(kSockets, 1);
  for (std::size_t a = 0; a < kSockets; ++a) {  // a ring
    for (std::size_t b = 0; b < kSockets; ++b) {
      const std::size_t apart = a > b ? a - b : b - a;
      machine.numa_latency.push_back(10.0 + 10.0 * static_cast<double>(std::min(apart, kSockets - apart)));
    }
  }
  EXPECT_EQ(count(build_graph(machine, BandwidthTable()).graph, EdgeKind::kSocket), kSockets);
}

TEST(BuildGraph, DistancesSayWhichSocketsAreLinked) {
  Machine machine = make_machine(4, 1);
  EXPECT_EQ(count(build_graph(machine, BandwidthTable()).graph, EdgeKind::kSocket), 6u);
  // A ring: opposite sockets are farther than neighbours.
  machine.numa_latency = {10, 20, 30, 20, 20, 10, 20, 30, 30, 20, 10, 20, 20, 30, 20, 10};
  EXPECT_EQ(count(build_graph(machine, BandwidthTable()).graph, EdgeKind::kSocket), 4u);
}

TEST(BuildGraph, MemoryWithoutCoresIsBesideTheNearest) {
  Machine machine = make_machine(2, 1);
  machine.memories.push_back({.os_index = 2, .bytes = 1, .kind = "CXL"});
  machine.numa_latency = {10, 20, 30, 20, 10, 15, 30, 15, 10};
  MachineGraph made = build_graph(machine, BandwidthTable());
  EXPECT_NE(edge_between(made.graph, made.memories[2], made.packages[1]), nullptr);
  EXPECT_EQ(edge_between(made.graph, made.memories[2], made.packages[0]), nullptr);
  machine.numa_latency.clear();  // nobody says: beside all
  made = build_graph(machine, BandwidthTable());
  EXPECT_EQ(made.graph.edges_at(made.memories[2]).size(), 2u);
}

TEST(BuildGraph, ABridgeWithoutSpeedIsAsWideAsTheWidestBelow) {
  Machine machine = make_machine(1, 1);
  machine.bridges.push_back({.bus_id = "root", .parent = {}, .cores = {0}});
  machine.bridges.push_back({.bus_id = "port", .parent = 0, .cores = {0}});
  for (const double link : {4e9, 16e9}) {
    Device device{.kind = DeviceKind::kGpu, .name = "gpu"};
    device.bridge = 1;
    device.link = link;
    machine.devices.push_back(device);
  }
  const MachineGraph made = build_graph(machine, BandwidthTable());
  const Edge* const edge = edge_between(made.graph, made.bridges[0], made.bridges[1]);
  ASSERT_NE(edge, nullptr);
  EXPECT_EQ(edge->forward.bytes_per_second, 16e9);
  EXPECT_EQ(edge->forward.origin, Origin::kAssumed);
}

TEST(BuildGraph, NvLinksHaveABandwidthEachWay) {
  Machine machine = make_machine(1, 1);
  for (int i = 0; i < 2; ++i) machine.devices.push_back({.kind = DeviceKind::kGpu, .name = "gpu"});
  machine.nvlinks.push_back({.from = 0, .to = 1, .bandwidth = 50e9});
  machine.nvlinks.push_back({.from = 1, .to = 0, .bandwidth = 25e9});
  machine.nvlinks.push_back({.to_kind = NvLink::End::kPackage, .from = 1, .to = 0, .bandwidth = 75e9});
  const MachineGraph made = build_graph(machine, BandwidthTable());
  EXPECT_EQ(count(made.graph, EdgeKind::kNvLink), 2u);
  for (const Edge& edge : made.graph.edges()) {
    if (edge.kind != EdgeKind::kNvLink) continue;
    const bool to_package = edge.from == made.packages[0] || edge.to == made.packages[0];
    EXPECT_EQ(edge.forward.bytes_per_second + edge.backward.bytes_per_second, 75e9);
    if (to_package) {
      EXPECT_TRUE(edge.forward.bytes_per_second == 0 || edge.backward.bytes_per_second == 0);
    }
  }
}

TEST(BuildGraph, TheDgx2HasItsNvSwitches) {
  const Machine machine = read_machine("nvidia-dgx2");
  EXPECT_EQ(count_of(machine, DeviceKind::kGpu), 16u);
  EXPECT_EQ(count_of(machine, DeviceKind::kNvSwitch), 11u);  // the twelfth is of another PCI class in this file
  const MachineGraph made = build_graph(machine, BandwidthTable());
  EXPECT_GT(count(made.graph, EdgeKind::kNvLink), 16u);
  for (const Edge& edge : made.graph.edges()) {
    if (edge.kind == EdgeKind::kNvLink) {
      EXPECT_EQ(edge.forward.origin, Origin::kAdvertised);
    }
  }
}

}  // namespace
}  // namespace fairlead::topology
