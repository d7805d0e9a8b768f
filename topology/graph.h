// A machine as a graph: what holds, moves or forwards bytes, and between them edges with a bandwidth each way.
//
// Bandwidths are bytes per second. Threads: values; no shared state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fairlead::topology {

/// How a figure came to be known.
enum class Origin : std::uint8_t {
  kMeasured,    // given by who runs the program (--bandwidth), as measured or known
  kAdvertised,  // the machine, or the file it was read from, says so
  kAssumed,     // from the default table (bandwidth_table.h)
};
[[nodiscard]] std::string_view to_string(Origin origin) noexcept;

struct Bandwidth {
  double bytes_per_second = 0;
  Origin origin = Origin::kAssumed;
  std::string source;  // in words: "PCIe 3.0 x16", "hwloc"
};
/// "12.5 GB/s", and where it is assumed "12.5 GB/s (assumed: ConnectX-5)".
[[nodiscard]] std::string to_string(const Bandwidth& bandwidth);

enum class NodeKind : std::uint8_t {
  kMemory,  // a NUMA node; nothing passes through
  kDomain,  // the cores beside a NUMA node, where a package has several such groups
  kPackage,
  kHostBridge,
  kPciBridge,
  kNic,
  kGpu,  // nothing passes through: NVLink carries what GPUs exchange, not what a NIC reads
  kNvSwitch,
  kNetwork,  // beyond every NIC; taken as not blocking
};

struct Node {
  NodeKind kind;
  std::string name;
  std::size_t index = 0;  // in the machine's vector for its kind
};

enum class EdgeKind : std::uint8_t { kMemory, kMesh, kSocket, kRoot, kPci, kNvLink, kPort };

struct Edge {
  EdgeKind kind;
  std::size_t from, to;
  Bandwidth forward, backward;  // from `from` to `to`, and back
  std::string name;             // "the link of 0000:2b:00.0"
};

class Graph {
 public:
  /// Gives its index.
  std::size_t add_node(NodeKind kind, std::string name, std::size_t index = 0);
  /// Both ends exist. A bandwidth that is negative or no number counts as 0.
  std::size_t add_edge(Edge edge);

  [[nodiscard]] const std::vector<Node>& nodes() const noexcept { return nodes_; }
  [[nodiscard]] const std::vector<Edge>& edges() const noexcept { return edges_; }
  /// The edges at a node.
  [[nodiscard]] const std::vector<std::size_t>& edges_at(std::size_t node) const { return at_[node]; }
  [[nodiscard]] std::size_t other_end(std::size_t edge, std::size_t node) const {
    return edges_[edge].from == node ? edges_[edge].to : edges_[edge].from;
  }
  [[nodiscard]] std::optional<std::size_t> find(NodeKind kind, std::size_t index) const;

 private:
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::vector<std::vector<std::size_t>> at_;
};

/// One step along an edge.
struct Hop {
  std::size_t edge;
  bool forward;

  bool operator==(const Hop&) const = default;
};
[[nodiscard]] inline const Bandwidth& bandwidth_of(const Graph& graph, Hop hop) {
  const Edge& edge = graph.edges()[hop.edge];
  return hop.forward ? edge.forward : edge.backward;
}
[[nodiscard]] inline std::size_t end_of(const Graph& graph, Hop hop) {
  const Edge& edge = graph.edges()[hop.edge];
  return hop.forward ? edge.to : edge.from;
}
/// What a step costs beside bandwidth: a socket crossed outweighs everything, then a NUMA node, then a hop.
[[nodiscard]] std::int64_t cost_of(EdgeKind kind) noexcept;
/// Whether bytes may pass through, beside beginning and ending there.
[[nodiscard]] bool forwards(NodeKind kind) noexcept;

}  // namespace fairlead::topology
