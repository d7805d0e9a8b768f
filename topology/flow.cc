#include "topology/flow.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "topology/network.h"

namespace fairlead::topology {
namespace {

// The graph with a node before all sources, and each edge as an arc per direction.
//
// Nodes that forward nothing are left by what begins there alone, and a NIC toward the network alone. A host bridge
// that hangs on several sockets does so because nobody says which one it is at: it is two nodes, entered from sockets
// and entered from devices, so that nothing goes through it from one socket to another.
class Ways {
 public:
  Ways(const Graph& graph, std::span<const std::size_t> sources, std::size_t sink) : graph_(graph), sink_(sink) {
    is_source_.resize(graph.nodes().size());
    for (const std::size_t source : sources) is_source_[source] = true;
    for (std::size_t node = 0; node < graph.nodes().size(); ++node) {
      const NodeKind kind = graph.nodes()[node].kind;
      enter_.push_back(net_.add_node());
      // Also apart: where a source that forwards nothing begins.
      const bool apart = kind == NodeKind::kHostBridge || (is_source_[node] && !forwards(kind));
      leave_.push_back(apart ? net_.add_node() : enter_.back());
      if (kind == NodeKind::kHostBridge) within_.push_back(add_arc(leave_.back(), enter_.back(), 0, 0, std::nullopt));
    }
    source_ = net_.add_node();
    for (std::size_t i = 0; i < graph.edges().size(); ++i) {
      add_edge({i, true});
      add_edge({i, false});
    }
    for (const std::size_t source : sources) {
      source_arcs_.push_back(add_arc(source_, leave_[source], 0, 0, std::nullopt));
    }
    for (const std::size_t arc : sink_arcs_) all_ += net_.capacity(arc);
    for (const std::size_t arc : within_) net_.set_capacity(arc, all_);  // no limit, but a number near the others
    net_.set_epsilon(all_ * 1e-9);
  }

  Allocation share() {
    if (source_arcs_.empty()) return {};
    fill(source_arcs_, std::vector<double>(source_arcs_.size(), 1), all_);
    Allocation result;
    for (const std::size_t arc : source_arcs_) result.rates.push_back(net_.capacity(arc));
    balance();
    net_.maximize(source_, enter_[sink_]);
    for (std::size_t i = 0; i < source_arcs_.size(); ++i) result.routes.push_back(take_routes(i));
    return result;
  }

  double max_flow() {
    for (const std::size_t arc : source_arcs_) net_.set_capacity(arc, all_);
    return net_.maximize(source_, enter_[sink_]);
  }

 private:
  void add_edge(Hop hop) {
    const Edge& edge = graph_.edges()[hop.edge];
    const std::size_t from = hop.forward ? edge.from : edge.to, to = hop.forward ? edge.to : edge.from;
    const NodeKind from_kind = graph_.nodes()[from].kind, to_kind = graph_.nodes()[to].kind;
    const double capacity = bandwidth_of(graph_, hop).bytes_per_second;
    if (from == sink_ || capacity <= 0 || from == to) return;
    if (to != sink_ && (!forwards(to_kind) || from_kind == NodeKind::kNic)) return;
    if (!forwards(from_kind) && !is_source_[from]) return;
    const bool root = edge.kind == EdgeKind::kRoot;
    const std::size_t tail = from_kind == NodeKind::kHostBridge && !root ? enter_[from] : leave_[from];
    const std::size_t head = to_kind == NodeKind::kHostBridge && !root ? leave_[to] : enter_[to];
    const std::size_t arc = add_arc(tail, head, capacity, cost_of(edge.kind), hop);
    if (to == sink_) sink_arcs_.push_back(arc);
    if (edge.kind == EdgeKind::kSocket) socket_arcs_.push_back(arc);
  }

  std::size_t add_arc(std::size_t from, std::size_t to, double capacity, std::int64_t cost, std::optional<Hop> hop) {
    hops_.push_back(hop);
    return net_.add_arc(from, to, capacity, cost);
  }

  // Raises the capacities of `arcs`, all of which leave the source or all enter the sink, together in proportion to
  // their weights, each until more of it could not be used; the common factor stays within `most`. Afterwards the
  // largest flow uses each of them up.
  void fill(const std::vector<std::size_t>& arcs, const std::vector<double>& weights, double most) {
    std::vector<bool> settled(arcs.size());
    for (std::size_t left = arcs.size(); left > 0;) {
      const double factor = common_factor(arcs, weights, settled, most);
      const std::vector<bool> from_source = net_.reachable(source_), to_sink = net_.reachable(enter_[sink_], true);
      std::size_t before = left;
      for (std::size_t i = 0; i < arcs.size(); ++i) {
        const bool more = from_source[net_.tail(arcs[i])] && to_sink[net_.head(arcs[i])];
        if (settled[i] || (more && factor < most)) continue;
        settled[i] = true;
        --left;
      }
      if (left == before) return;  // by rounding: all keep what they have
    }
  }

  // The largest factor at which all arcs that are not settled can be used up, set as their capacities. Newton's method
  // on the capacity of the smallest cut, a piecewise linear concave function of the factor: exact after few steps.
  double common_factor(const std::vector<std::size_t>& arcs, const std::vector<double>& weights,
                       const std::vector<bool>& settled, double most) {
    double factor = most;
    for (;;) {
      double wanted = 0;
      for (std::size_t i = 0; i < arcs.size(); ++i) {
        if (!settled[i]) net_.set_capacity(arcs[i], factor * weights[i]);
        wanted += net_.capacity(arcs[i]);
      }
      const double value = net_.maximize(source_, enter_[sink_]);
      if (wanted - value <= net_.epsilon() * static_cast<double>(arcs.size() + 1)) return factor;
      const std::vector<bool> near = net_.reachable(source_);
      double room = 0, weight = 0;
      for (std::size_t arc = 0; arc < net_.arc_count(); arc += 2) {
        if (near[net_.tail(arc)] && !near[net_.head(arc)]) room += net_.capacity(arc);
      }
      for (std::size_t i = 0; i < arcs.size(); ++i) {
        const bool cut = near[net_.tail(arcs[i])] && !near[net_.head(arcs[i])];
        if (cut) room -= net_.capacity(arcs[i]);
        if (!cut && settled[i]) room -= net_.capacity(arcs[i]);
        if (!cut && !settled[i]) weight += weights[i];
      }
      const double next = weight > 0 ? std::max(0.0, room / weight) : factor;
      if (next >= factor) return factor;
      factor = next;
    }
  }

  // With the sources' rates fixed: forbids what a cheapest flow would not use, and more across sockets than it uses;
  // then spreads over the edges into the sink.
  void balance() {
    net_.maximize(source_, enter_[sink_]);
    std::vector<double> crossing;
    for (const std::size_t arc : socket_arcs_) crossing.push_back(net_.flow(arc));
    const std::vector<std::size_t> dear = net_.too_dear();
    for (std::size_t i = 0; i < socket_arcs_.size(); ++i) net_.set_capacity(socket_arcs_[i], crossing[i]);
    for (const std::size_t arc : dear) net_.set_capacity(arc, 0);
    std::vector<std::size_t> open;
    std::vector<double> weights;
    for (const std::size_t arc : sink_arcs_) {
      if (net_.capacity(arc) <= net_.epsilon()) continue;
      open.push_back(arc);
      weights.push_back(net_.capacity(arc));
    }
    fill(open, weights, 1);
  }

  // Splits off what source `i` sends. Flow is kept at every node and runs in no circle (that would not be cheapest), so
  // that a walk along it ends in the sink.
  std::vector<Route> take_routes(std::size_t i) {
    if (spent_.empty()) spent_.resize(net_.arc_count() / 2);
    const double nothing = net_.epsilon() * 8;
    std::vector<Route> routes;
    double left = net_.flow(source_arcs_[i]);
    while (left > nothing) {
      Route route{.hops = {}, .rate = left};
      std::vector<std::size_t> walked;
      for (std::size_t node = net_.head(source_arcs_[i]); node != enter_[sink_];) {
        std::size_t best = 0;
        double most = nothing;
        for (const std::size_t arc : net_.leaving(node)) {
          const double flow = arc % 2 == 0 ? net_.flow(arc) - spent_[arc / 2] : 0;
          if (flow <= most) continue;
          most = flow;
          best = arc;
        }
        if (most <= nothing || walked.size() > hops_.size()) return routes;  // what rounding left over
        route.rate = std::min(route.rate, most);
        walked.push_back(best);
        node = net_.head(best);
      }
      for (const std::size_t arc : walked) {
        spent_[arc / 2] += route.rate;
        if (hops_[arc / 2]) route.hops.push_back(*hops_[arc / 2]);
      }
      left -= route.rate;
      routes.push_back(std::move(route));
    }
    return routes;
  }

  const Graph& graph_;
  const std::size_t sink_;
  FlowNetwork net_;
  std::size_t source_ = 0;
  double all_ = 0;                          // what the edges into the sink carry together
  std::vector<bool> is_source_;             // of the graph's nodes
  std::vector<std::size_t> enter_, leave_;  // of the graph's nodes
  std::vector<std::optional<Hop>> hops_;    // of every second arc; nullopt: of no edge
  std::vector<std::size_t> source_arcs_, sink_arcs_, socket_arcs_;
  std::vector<std::size_t> within_;  // through a host bridge, from device to device
  std::vector<double> spent_;        // of every second arc: what take_routes() gave away
};

struct Label {
  double width = 0;  // 0: not reached
  std::int64_t cost = 0;
  Hop by{};
  bool done = false;
};

// Dijkstra's algorithm: by width, or, where `enough` is above 0, by cost along edges that are that wide.
std::vector<Label> best_labels(const Graph& graph, std::size_t source, double enough) {
  const auto better = [enough](const Label& a, const Label& b) {
    if (b.width <= 0) return a.width > 0;
    return enough > 0 ? a.cost < b.cost : a.width > b.width;
  };
  std::vector<Label> labels(graph.nodes().size());
  labels[source].width = std::numeric_limits<double>::max();
  for (;;) {
    std::optional<std::size_t> next;
    for (std::size_t node = 0; node < labels.size(); ++node) {
      if (labels[node].done || labels[node].width <= 0) continue;
      if (!next || better(labels[node], labels[*next])) next = node;
    }
    if (!next) return labels;
    labels[*next].done = true;
    const NodeKind kind = graph.nodes()[*next].kind;
    if (*next != source && !forwards(kind)) continue;
    for (const std::size_t edge : graph.edges_at(*next)) {
      const Hop hop{edge, graph.edges()[edge].from == *next};
      const std::size_t to = end_of(graph, hop);
      if (kind == NodeKind::kNic && graph.nodes()[to].kind != NodeKind::kNetwork) continue;
      const double bandwidth = bandwidth_of(graph, hop).bytes_per_second;
      const Label label{std::min(labels[*next].width, bandwidth),
                        labels[*next].cost + cost_of(graph.edges()[edge].kind), hop, false};
      if (!labels[to].done && bandwidth >= enough && better(label, labels[to])) labels[to] = label;
    }
  }
}

}  // namespace

double max_flow(const Graph& graph, std::size_t source, std::size_t sink) {
  return Ways(graph, std::span(&source, 1), sink).max_flow();
}

Allocation share(const Graph& graph, std::span<const std::size_t> sources, std::size_t sink) {
  return Ways(graph, sources, sink).share();
}

std::optional<Route> widest_route(const Graph& graph, std::size_t source, std::size_t sink) {
  if (source == sink) return std::nullopt;
  const double width = best_labels(graph, source, 0)[sink].width;
  if (width <= 0) return std::nullopt;
  // Of all ways that are as wide as the widest, the cheapest: its beginning need not be the widest to anywhere.
  const std::vector<Label> labels = best_labels(graph, source, width);
  Route route{.hops = {}, .rate = width};
  for (std::size_t node = sink; node != source;) {
    route.hops.push_back(labels[node].by);
    node = graph.other_end(labels[node].by.edge, node);
  }
  std::reverse(route.hops.begin(), route.hops.end());
  return route;
}

std::int64_t cost_of(const Graph& graph, const Route& route) {
  std::int64_t cost = 0;
  for (const Hop hop : route.hops) cost += cost_of(graph.edges()[hop.edge].kind);
  return cost;
}

}  // namespace fairlead::topology
