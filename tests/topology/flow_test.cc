#include "topology/flow.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <random>

namespace fairlead::topology {
namespace {

constexpr double kGigabyte = 1e9;
constexpr double kClose = 1e-5;  // the promise is 1 %

struct World {
  Graph graph;
  std::vector<std::size_t> sources;
  std::size_t network = 0;
};

std::size_t link(World* world, EdgeKind kind, std::size_t from, std::size_t to, double there, double back) {
  return world->graph.add_edge(
      {kind, from, to, {there * kGigabyte, Origin::kAssumed, ""}, {back * kGigabyte, Origin::kAssumed, ""}, "edge"});
}

// Anything: circles, parts that hang on nothing, edges without bandwidth, several edges between the same two.
World random_world(std::mt19937* random) {
  World world;
  const auto below = [random](std::size_t limit) { return (*random)() % limit; };
  const auto bandwidth = [&below] { return below(6) == 0 ? 0 : static_cast<double>(1 + below(64)) / 2; };
  std::vector<std::size_t> packages, inner;
  for (std::size_t i = 1 + below(3); i > 0; --i)
    packages.push_back(world.graph.add_node(NodeKind::kPackage, "package"));
  inner = packages;
  for (std::size_t i = below(4); i > 0; --i) {
    inner.push_back(world.graph.add_node(NodeKind::kPciBridge, "bridge"));
    for (std::size_t edges = below(3); edges > 0; --edges) {
      link(&world, EdgeKind::kPci, inner[below(inner.size())], inner.back(), bandwidth(), bandwidth());
    }
  }
  for (std::size_t i = below(4); i > 0; --i) {
    link(&world, EdgeKind::kSocket, packages[below(packages.size())], packages[below(packages.size())], bandwidth(),
         bandwidth());
  }
  world.network = world.graph.add_node(NodeKind::kNetwork, "network");
  for (std::size_t i = below(5); i > 0; --i) {
    const std::size_t nic = world.graph.add_node(NodeKind::kNic, "nic");
    link(&world, EdgeKind::kPci, inner[below(inner.size())], nic, bandwidth(), bandwidth());
    if (below(8) != 0) link(&world, EdgeKind::kPort, nic, world.network, bandwidth(), bandwidth());
  }
  for (std::size_t i = 1 + below(3); i > 0; --i) {
    if (!world.sources.empty() && below(5) == 0) {  // twice the same, to two peers
      world.sources.push_back(world.sources.front());
      continue;
    }
    const bool gpu = below(2) == 0;
    world.sources.push_back(world.graph.add_node(gpu ? NodeKind::kGpu : NodeKind::kMemory, "source"));
    for (std::size_t edges = 1 + below(2); edges > 0; --edges) {
      link(&world, gpu ? EdgeKind::kPci : EdgeKind::kMemory, world.sources.back(), inner[below(inner.size())],
           bandwidth(), bandwidth());
    }
  }
  return world;
}

// The smallest cut between some sources and the network, by trying every one: what they can send together.
double smallest_cut(const World& world, unsigned chosen, bool sockets) {
  struct Step {
    std::size_t from, to;
    double bandwidth;
  };
  std::vector<Step> steps;
  const auto& nodes = world.graph.nodes();
  unsigned sources = 0;
  for (std::size_t i = 0; i < world.sources.size(); ++i) {
    if ((chosen >> i & 1) != 0) sources |= 1u << world.sources[i];
  }
  for (const Edge& edge : world.graph.edges()) {
    if (edge.kind == EdgeKind::kSocket && !sockets) continue;
    for (const bool forward : {true, false}) {
      const std::size_t from = forward ? edge.from : edge.to, to = forward ? edge.to : edge.from;
      const bool leaves = (sources >> from & 1) != 0 || nodes[from].kind == NodeKind::kPackage ||
                          nodes[from].kind == NodeKind::kPciBridge ||
                          (nodes[from].kind == NodeKind::kNic && to == world.network);
      const bool enters = to == world.network || nodes[to].kind == NodeKind::kPackage ||
                          nodes[to].kind == NodeKind::kPciBridge || nodes[to].kind == NodeKind::kNic;
      if (leaves && enters) steps.push_back({from, to, (forward ? edge.forward : edge.backward).bytes_per_second});
    }
  }
  double smallest = std::numeric_limits<double>::infinity();
  for (unsigned side = 0; side < 1u << nodes.size(); ++side) {
    if ((side & sources) != sources || (side >> world.network & 1) != 0) continue;
    double cut = 0;
    for (const Step& step : steps) {
      if ((side >> step.from & 1) != 0 && (side >> step.to & 1) == 0) cut += step.bandwidth;
    }
    smallest = std::min(smallest, cut);
  }
  return smallest;
}

double sum_of(const std::vector<double>& rates, unsigned chosen) {
  double sum = 0;
  for (std::size_t i = 0; i < rates.size(); ++i) sum += (chosen >> i & 1) != 0 ? rates[i] : 0;
  return sum;
}

bool crosses(const World& world, const Allocation& allocation) {
  for (const auto& routes : allocation.routes) {
    for (const Route& route : routes) {
      for (const Hop hop : route.hops) {
        if (world.graph.edges()[hop.edge].kind == EdgeKind::kSocket) return true;
      }
    }
  }
  return false;
}

void expect_sound(const World& world, const Allocation& allocation) {
  std::vector<std::array<double, 2>> load(world.graph.edges().size());
  for (std::size_t i = 0; i < world.sources.size(); ++i) {
    double sum = 0;
    for (const Route& route : allocation.routes[i]) {
      std::size_t node = world.sources[i];
      for (const Hop hop : route.hops) {
        ASSERT_NE(end_of(world.graph, hop), node);
        ASSERT_EQ(world.graph.other_end(hop.edge, node), end_of(world.graph, hop));
        node = end_of(world.graph, hop);
        load[hop.edge][hop.forward] += route.rate;
      }
      EXPECT_EQ(node, world.network);
      EXPECT_GT(route.rate, 0);
      sum += route.rate;
    }
    EXPECT_NEAR(sum, allocation.rates[i], kClose * allocation.rates[i] + 1e3);
  }
  for (std::size_t i = 0; i < load.size(); ++i) {
    EXPECT_LE(load[i][1], world.graph.edges()[i].forward.bytes_per_second * (1 + kClose));
    EXPECT_LE(load[i][0], world.graph.edges()[i].backward.bytes_per_second * (1 + kClose));
  }
}

class RandomGraphs : public ::testing::TestWithParam<unsigned> {};

TEST_P(RandomGraphs, OneSourceSendsAllThatTheSmallestCutLets) {
  std::mt19937 random(GetParam());
  for (int round = 0; round < 100; ++round) {
    World world = random_world(&random);
    world.sources.resize(1);
    const double most = smallest_cut(world, 1, true), local = smallest_cut(world, 1, false);
    EXPECT_NEAR(max_flow(world.graph, world.sources[0], world.network), most, kClose * most + 1) << round;
    const Allocation allocation = share(world.graph, world.sources, world.network);
    EXPECT_NEAR(allocation.rates[0], most, kClose * most + 1) << round;
    expect_sound(world, allocation);
    if (local >= most) {
      EXPECT_FALSE(crosses(world, allocation)) << round;
    }
    const auto widest = widest_route(world.graph, world.sources[0], world.network);
    EXPECT_EQ(widest.has_value(), most > 0) << round;
    if (widest) {
      EXPECT_LE(widest->rate, most * (1 + kClose)) << round;
    }
    if (HasFailure()) FAIL() << "seed " << GetParam() << ", round " << round;
  }
}

// Max-min fair: nobody could have more unless somebody who has no more had less. That is so if each source is in some
// set that sends all it can and in which none sends more than it does.
TEST_P(RandomGraphs, SeveralSourcesAreMaxMinFair) {
  std::mt19937 random(GetParam() + 1'000'000);
  for (int round = 0; round < 60; ++round) {
    const World world = random_world(&random);
    const Allocation allocation = share(world.graph, world.sources, world.network);
    expect_sound(world, allocation);
    std::vector<bool> bound(world.sources.size());
    bool feasible_locally = true;
    for (unsigned chosen = 1; chosen < 1u << world.sources.size(); ++chosen) {
      const double cut = smallest_cut(world, chosen, true), sum = sum_of(allocation.rates, chosen);
      EXPECT_LE(sum, cut * (1 + kClose) + 1) << round;
      feasible_locally = feasible_locally && sum <= smallest_cut(world, chosen, false);
      if (sum < cut * (1 - kClose) - 1) continue;
      double largest = 0;
      for (std::size_t i = 0; i < bound.size(); ++i) {
        if ((chosen >> i & 1) != 0) largest = std::max(largest, allocation.rates[i]);
      }
      for (std::size_t i = 0; i < bound.size(); ++i) {
        if ((chosen >> i & 1) != 0 && allocation.rates[i] >= largest * (1 - kClose) - 1) bound[i] = true;
      }
    }
    for (std::size_t i = 0; i < bound.size(); ++i) EXPECT_TRUE(bound[i]) << "source " << i << " could have more";
    if (feasible_locally) {
      EXPECT_FALSE(crosses(world, allocation)) << round;
    }
    World turned = world;
    std::reverse(turned.sources.begin(), turned.sources.end());
    std::vector<double> rates = share(turned.graph, turned.sources, turned.network).rates;
    std::reverse(rates.begin(), rates.end());
    for (std::size_t i = 0; i < rates.size(); ++i) {
      EXPECT_NEAR(rates[i], allocation.rates[i], kClose * rates[i] + 1e3) << "the order mattered";
    }
    if (HasFailure()) FAIL() << "seed " << GetParam() << ", round " << round;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomGraphs, ::testing::Values(1u, 2u, 3u, 4u));

TEST(Share, SpreadsOverNicsInProportionToTheirRates) {
  World world;
  const std::size_t package = world.graph.add_node(NodeKind::kPackage, "p");
  world.network = world.graph.add_node(NodeKind::kNetwork, "n");
  world.sources = {world.graph.add_node(NodeKind::kMemory, "m")};
  link(&world, EdgeKind::kMemory, world.sources[0], package, 15, 15);
  for (const double rate : {10.0, 20.0}) {
    const std::size_t nic = world.graph.add_node(NodeKind::kNic, "nic");
    link(&world, EdgeKind::kPci, package, nic, 100, 100);
    link(&world, EdgeKind::kPort, nic, world.network, rate, rate);
  }
  const Allocation allocation = share(world.graph, world.sources, world.network);
  ASSERT_EQ(allocation.routes[0].size(), 2u);
  double smaller = allocation.routes[0][0].rate, larger = allocation.routes[0][1].rate;
  if (smaller > larger) std::swap(smaller, larger);
  EXPECT_NEAR(smaller, 5 * kGigabyte, 1e4);
  EXPECT_NEAR(larger, 10 * kGigabyte, 1e4);
}

// What one source leaves of an edge is what another's share is taken of: Mooncake #813, where equal shares over NICs of
// which one was busy made four NICs slower than one.
TEST(Share, TakesOfANicWhatOthersLeave) {
  World world;
  const std::size_t package = world.graph.add_node(NodeKind::kPackage, "p");
  const std::size_t bridge = world.graph.add_node(NodeKind::kPciBridge, "b");
  world.network = world.graph.add_node(NodeKind::kNetwork, "n");
  link(&world, EdgeKind::kPci, package, bridge, 100, 100);
  for (const std::size_t at : {bridge, package}) {
    const std::size_t nic = world.graph.add_node(NodeKind::kNic, "nic");
    link(&world, EdgeKind::kPci, at, nic, 100, 100);
    link(&world, EdgeKind::kPort, nic, world.network, 10, 10);
  }
  const std::size_t gpu = world.graph.add_node(NodeKind::kGpu, "g"),
                    memory = world.graph.add_node(NodeKind::kMemory, "m");
  link(&world, EdgeKind::kPci, bridge, gpu, 6, 6);
  link(&world, EdgeKind::kMemory, memory, package, 100, 100);
  world.sources = {gpu, memory};
  const Allocation allocation = share(world.graph, world.sources, world.network);
  EXPECT_NEAR(allocation.rates[0], 6 * kGigabyte, 1e4);
  EXPECT_NEAR(allocation.rates[1], 14 * kGigabyte, 1e4);
  expect_sound(world, allocation);
}

TEST(Share, NothingGoesThroughAGpuOrBackThroughANic) {
  World world;
  world.network = world.graph.add_node(NodeKind::kNetwork, "n");
  const std::size_t a = world.graph.add_node(NodeKind::kGpu, "a"), b = world.graph.add_node(NodeKind::kGpu, "b");
  const std::size_t bridge = world.graph.add_node(NodeKind::kPciBridge, "bridge");
  const std::size_t nic = world.graph.add_node(NodeKind::kNic, "nic");
  link(&world, EdgeKind::kNvLink, a, b, 300, 300);
  link(&world, EdgeKind::kPci, bridge, b, 30, 30);
  link(&world, EdgeKind::kPci, bridge, nic, 30, 30);
  link(&world, EdgeKind::kPort, nic, world.network, 25, 25);
  EXPECT_EQ(max_flow(world.graph, a, world.network), 0);
  EXPECT_EQ(widest_route(world.graph, a, world.network), std::nullopt);
  world.sources = {a, b};
  const Allocation allocation = share(world.graph, world.sources, world.network);
  EXPECT_EQ(allocation.rates[0], 0);
  EXPECT_NEAR(allocation.rates[1], 25 * kGigabyte, 1e4);
}

TEST(Share, AHostBridgeThatNobodyPlacesIsNoWayBetweenSockets) {
  World world;
  world.network = world.graph.add_node(NodeKind::kNetwork, "n");
  const std::size_t a = world.graph.add_node(NodeKind::kPackage, "a"),
                    b = world.graph.add_node(NodeKind::kPackage, "b");
  const std::size_t anywhere = world.graph.add_node(NodeKind::kHostBridge, "anywhere");
  const std::size_t nic = world.graph.add_node(NodeKind::kNic, "nic"),
                    gpu = world.graph.add_node(NodeKind::kGpu, "gpu");
  const std::size_t memory = world.graph.add_node(NodeKind::kMemory, "m");
  link(&world, EdgeKind::kRoot, a, anywhere, 100, 100);
  link(&world, EdgeKind::kRoot, b, anywhere, 100, 100);
  link(&world, EdgeKind::kPci, b, nic, 50, 50);
  link(&world, EdgeKind::kPort, nic, world.network, 50, 50);
  link(&world, EdgeKind::kMemory, memory, a, 100, 100);
  link(&world, EdgeKind::kPci, anywhere, gpu, 30, 30);
  EXPECT_EQ(max_flow(world.graph, memory, world.network), 0);
  EXPECT_NEAR(max_flow(world.graph, gpu, world.network), 30 * kGigabyte, 1e4);
}

TEST(Share, OfNothingIsNothing) {
  World world;
  world.network = world.graph.add_node(NodeKind::kNetwork, "n");
  EXPECT_TRUE(share(world.graph, world.sources, world.network).rates.empty());
  const std::size_t alone = world.graph.add_node(NodeKind::kMemory, "m");
  world.sources = {alone, alone};
  EXPECT_EQ(share(world.graph, world.sources, world.network).rates, (std::vector<double>{0, 0}));
}

TEST(Share, BandwidthsThatAreNoneCountAsNone) {
  World world;
  world.network = world.graph.add_node(NodeKind::kNetwork, "n");
  const std::size_t nic = world.graph.add_node(NodeKind::kNic, "nic"),
                    gpu = world.graph.add_node(NodeKind::kGpu, "gpu");
  link(&world, EdgeKind::kPci, gpu, nic, std::numeric_limits<double>::infinity(), -1);
  const std::size_t port =
      link(&world, EdgeKind::kPort, nic, world.network, std::numeric_limits<double>::quiet_NaN(), -5);
  EXPECT_EQ(world.graph.edges()[port].forward.bytes_per_second, 0);
  EXPECT_EQ(world.graph.edges()[port].backward.bytes_per_second, 0);
  EXPECT_EQ(max_flow(world.graph, gpu, world.network), 0);
  link(&world, EdgeKind::kPort, nic, world.network, 12.5, 12.5);
  EXPECT_NEAR(max_flow(world.graph, gpu, world.network), 12.5 * kGigabyte, 1e4);
}

TEST(WidestRoute, OfEquallyWideWaysTakesTheNearest) {
  World world;
  world.network = world.graph.add_node(NodeKind::kNetwork, "n");
  const std::size_t a = world.graph.add_node(NodeKind::kPackage, "a"),
                    b = world.graph.add_node(NodeKind::kPackage, "b");
  const std::size_t memory = world.graph.add_node(NodeKind::kMemory, "m");
  link(&world, EdgeKind::kMemory, memory, a, 100, 100);
  link(&world, EdgeKind::kSocket, a, b, 80, 80);
  std::vector<std::size_t> ports;
  for (const std::size_t at : {b, a}) {
    const std::size_t nic = world.graph.add_node(NodeKind::kNic, "nic");
    link(&world, EdgeKind::kPci, at, nic, 60, 60);
    ports.push_back(link(&world, EdgeKind::kPort, nic, world.network, 50, 50));
  }
  const auto route = widest_route(world.graph, memory, world.network);
  ASSERT_TRUE(route);
  EXPECT_EQ(route->hops.back().edge, ports[1]);
  EXPECT_EQ(cost_of(world.graph, *route), 3);
  EXPECT_EQ(route->rate, 50 * kGigabyte);
}

}  // namespace
}  // namespace fairlead::topology
