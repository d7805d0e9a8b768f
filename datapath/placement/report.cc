#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fairlead/placement.h"

namespace fairlead::inline v0 {

std::string PlacementReport::to_string() const {
  std::string text;
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    if (!lanes[i].pinned) continue;
    text += fmt::format("{}lane {} on CPU {} ({})", text.empty() ? "" : ", ", i, fmt::join(lanes[i].cpus, ","),
                        lanes[i].reason);
  }
  if (text.empty()) text = lanes.empty() ? "no lanes" : fmt::format("no lane is pinned ({})", lanes.front().reason);
  if (!pool_node) {
    // Mostly for the same reason.
    const bool same = !lanes.empty() && lanes.front().reason == pool_reason;
    return text + "; the pool is bound to no NUMA node" + (same ? "" : fmt::format(" ({})", pool_reason));
  }
  return text + fmt::format("; pool on node {} ({})", *pool_node, pool_reason);
}

}  // namespace fairlead::inline v0
