#include "topology/network.h"

#include <algorithm>
#include <deque>
#include <limits>

namespace fairlead::topology {

std::size_t FlowNetwork::add_node() {
  leaving_.emplace_back();
  return leaving_.size() - 1;
}

std::size_t FlowNetwork::add_arc(std::size_t from, std::size_t to, double capacity, std::int64_t cost) {
  const std::size_t arc = arcs_.size();
  arcs_.push_back({to, capacity, capacity, cost});
  arcs_.push_back({from, 0, 0, -cost});
  leaving_[from].push_back(arc);
  leaving_[to].push_back(arc + 1);
  return arc;
}

double FlowNetwork::maximize(std::size_t source, std::size_t sink) {
  for (Arc& arc : arcs_) arc.residual = arc.capacity;
  double value = 0;
  for (double sent = 0; source != sink && augment(source, sink, &sent);) value += sent;
  return value;
}

bool FlowNetwork::augment(std::size_t source, std::size_t sink, double* sent) {
  struct Label {
    std::int64_t cost = std::numeric_limits<std::int64_t>::max();
    double width = 0;
    std::size_t by = 0;  // the arc that led there
    bool waiting = false;
  };
  std::vector<Label> labels(leaving_.size());
  labels[source] = {0, std::numeric_limits<double>::infinity(), 0, true};
  std::deque<std::size_t> queue = {source};
  while (!queue.empty()) {
    const std::size_t node = queue.front();
    queue.pop_front();
    labels[node].waiting = false;
    const Label from = labels[node];
    for (const std::size_t index : leaving_[node]) {
      const Arc& arc = arcs_[index];
      if (arc.residual <= epsilon_ || arc.to == source) continue;
      Label& to = labels[arc.to];
      const std::int64_t cost = from.cost + arc.cost;
      const double width = std::min(from.width, arc.residual);
      if (cost > to.cost || (cost == to.cost && width <= to.width)) continue;
      const bool waiting = to.waiting;
      to = {cost, width, index, true};
      if (!waiting) queue.push_back(arc.to);
    }
  }
  if (labels[sink].width <= 0) return false;
  // The labels before the sink may have widened since: what the path carries is counted along it.
  double width = std::numeric_limits<double>::infinity();
  for (std::size_t node = sink; node != source; node = arcs_[labels[node].by ^ 1].to) {
    width = std::min(width, arcs_[labels[node].by].residual);
  }
  for (std::size_t node = sink; node != source; node = arcs_[labels[node].by ^ 1].to) {
    arcs_[labels[node].by].residual -= width;
    arcs_[labels[node].by ^ 1].residual += width;
  }
  *sent = width;
  return true;
}

std::vector<bool> FlowNetwork::reachable(std::size_t from, bool backwards) const {
  std::vector<bool> reached(leaving_.size());
  std::vector<std::size_t> waiting = {from};
  reached[from] = true;
  while (!waiting.empty()) {
    const std::size_t node = waiting.back();
    waiting.pop_back();
    for (const std::size_t index : leaving_[node]) {
      const double left = arcs_[backwards ? index ^ 1 : index].residual;
      if (left <= epsilon_ || reached[arcs_[index].to]) continue;
      reached[arcs_[index].to] = true;
      waiting.push_back(arcs_[index].to);
    }
  }
  return reached;
}

std::vector<std::size_t> FlowNetwork::too_dear() const {
  // Any potentials under which no residual arc has a negative reduced cost will do; a cheapest flow has some.
  std::vector<std::int64_t> potential(leaving_.size(), 0);
  for (std::size_t round = 0; round < leaving_.size(); ++round) {
    bool changed = false;
    for (std::size_t index = 0; index < arcs_.size(); ++index) {
      if (residual(index) <= epsilon_) continue;
      const std::int64_t cost = potential[tail(index)] + arcs_[index].cost;
      if (cost >= potential[head(index)]) continue;
      potential[head(index)] = cost;
      changed = true;
    }
    if (!changed) break;
  }
  std::vector<std::size_t> dear;
  for (std::size_t index = 0; index < arcs_.size(); index += 2) {
    if (arcs_[index].cost + potential[tail(index)] - potential[head(index)] > 0) dear.push_back(index);
  }
  return dear;
}

}  // namespace fairlead::topology
