#include "topology/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "topology/machine.h"

namespace fairlead::topology {

std::string_view to_string(Origin origin) noexcept {
  switch (origin) {
    case Origin::kMeasured:
      return "measured";
    case Origin::kAdvertised:
      return "advertised";
    case Origin::kAssumed:
      return "assumed";
  }
  return "assumed";
}

std::string to_string(const Bandwidth& bandwidth) {
  const std::string figure = to_gigabytes_per_second(bandwidth.bytes_per_second);
  if (bandwidth.origin == Origin::kAdvertised) return figure;
  const std::string_view origin = to_string(bandwidth.origin);
  return bandwidth.source.empty() ? fmt::format("{} ({})", figure, origin)
                                  : fmt::format("{} ({}: {})", figure, origin, bandwidth.source);
}

std::size_t Graph::add_node(NodeKind kind, std::string name, std::size_t index) {
  nodes_.push_back({kind, std::move(name), index});
  at_.emplace_back();
  return nodes_.size() - 1;
}

std::size_t Graph::add_edge(Edge edge) {
  assert(edge.from < nodes_.size() && edge.to < nodes_.size());
  for (Bandwidth* bandwidth : {&edge.forward, &edge.backward}) {
    if (!(bandwidth->bytes_per_second > 0)) bandwidth->bytes_per_second = 0;
    bandwidth->bytes_per_second = std::min(bandwidth->bytes_per_second, 1e18);  // infinity has no residual
  }
  at_[edge.from].push_back(edges_.size());
  if (edge.to != edge.from) at_[edge.to].push_back(edges_.size());
  edges_.push_back(std::move(edge));
  return edges_.size() - 1;
}

std::optional<std::size_t> Graph::find(NodeKind kind, std::size_t index) const {
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    if (nodes_[node].kind == kind && nodes_[node].index == index) return node;
  }
  return std::nullopt;
}

std::int64_t cost_of(EdgeKind kind) noexcept {
  switch (kind) {
    case EdgeKind::kSocket:
      return 1'000'000;
    case EdgeKind::kMesh:
      return 1'000;
    default:
      return 1;
  }
}

bool forwards(NodeKind kind) noexcept {
  return kind != NodeKind::kMemory && kind != NodeKind::kGpu && kind != NodeKind::kNetwork;
}

}  // namespace fairlead::topology
