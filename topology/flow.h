// How much a graph can carry, and by which ways: pure functions.
//
// Every flow ends in one node, the network beyond the NICs. So that what several sources send there is one commodity,
// and max-min fair rates are found exactly, by largest flows alone (Megiddo, "Optimal flows in networks with multiple
// sources and sinks", 1974). Rates are bytes per second. Threads: any.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "topology/graph.h"

namespace fairlead::topology {

struct Route {
  std::vector<Hop> hops;  // from the source to the sink
  double rate = 0;
};

struct Allocation {
  std::vector<double> rates;               // of the sources
  std::vector<std::vector<Route>> routes;  // of the sources; the rates of a source's routes add up to its rate
};

/// What one source can send if nothing else is sent; 0 where no way leads to the sink.
[[nodiscard]] double max_flow(const Graph& graph, std::size_t source, std::size_t sink);

/// The max-min fair rates of the sources (a node may be several sources), and ways for them:
///   - no more crosses between sockets than these rates need, and beyond that few NUMA nodes and hops are crossed;
///   - among edges into the sink that are equally near, what is sent is spread in proportion to their bandwidths, or to
///     what other sources leave of these.
/// The result does not depend on the order of the sources, but for which of equal sources has which way.
[[nodiscard]] Allocation share(const Graph& graph, std::span<const std::size_t> sources, std::size_t sink);

/// The widest way, and of equally wide ones the cheapest (cost_of). nullopt: none.
[[nodiscard]] std::optional<Route> widest_route(const Graph& graph, std::size_t source, std::size_t sink);
[[nodiscard]] std::int64_t cost_of(const Graph& graph, const Route& route);

}  // namespace fairlead::topology
