// A flow network of arcs with capacities and costs, and the cheapest of its largest flows.
//
// Successive cheapest paths (Busacker and Gowen), the widest of equally cheap ones first; capacities are doubles, and
// what is not above epsilon() counts as nothing. Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fairlead::topology {

class FlowNetwork {
 public:
  /// Gives its index.
  std::size_t add_node();
  /// Gives its index, even: the next is its reverse. `cost` >= 0.
  std::size_t add_arc(std::size_t from, std::size_t to, double capacity, std::int64_t cost);

  /// The value of the largest flow, which becomes the network's; of those with this value the cheapest.
  double maximize(std::size_t source, std::size_t sink);

  void set_capacity(std::size_t arc, double capacity) { arcs_[arc].capacity = capacity; }
  [[nodiscard]] double capacity(std::size_t arc) const { return arcs_[arc].capacity; }
  [[nodiscard]] double flow(std::size_t arc) const { return arcs_[arc].capacity - residual(arc); }
  [[nodiscard]] std::size_t tail(std::size_t arc) const { return arcs_[arc ^ 1].to; }
  [[nodiscard]] std::size_t head(std::size_t arc) const { return arcs_[arc].to; }
  [[nodiscard]] std::size_t arc_count() const { return arcs_.size(); }
  /// Arcs and reverses that leave it.
  [[nodiscard]] const std::vector<std::size_t>& leaving(std::size_t node) const { return leaving_[node]; }
  [[nodiscard]] double epsilon() const { return epsilon_; }
  void set_epsilon(double epsilon) { epsilon_ = epsilon; }

  /// Nodes to which `from` could send more; or, `backwards`, which could send more to it.
  [[nodiscard]] std::vector<bool> reachable(std::size_t from, bool backwards = false) const;
  /// Arcs that no cheapest flow of this value uses, by complementary slackness. After maximize().
  [[nodiscard]] std::vector<std::size_t> too_dear() const;

 private:
  struct Arc {
    std::size_t to;
    double capacity;
    double residual;
    std::int64_t cost;
  };
  [[nodiscard]] double residual(std::size_t arc) const { return arcs_[arc].residual; }
  /// Sends along the cheapest path; false where there is none.
  bool augment(std::size_t source, std::size_t sink, double* sent);

  std::vector<Arc> arcs_;
  std::vector<std::vector<std::size_t>> leaving_;
  double epsilon_ = 0;
};

}  // namespace fairlead::topology
