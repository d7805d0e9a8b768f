#include "base/placement_wish.h"

#include <fmt/format.h>

#include "base/index_list.h"

namespace fairlead {

Result<PlacementWish> parse_placement(std::string_view text) {
  constexpr std::string_view kNode = "node=", kCores = "cores=";
  if (text == "auto") return PlacementWish{};
  if (text == "off") return PlacementWish{.kind = PlacementWish::Kind::kOff};
  if (text.starts_with(kNode)) {
    const Result<std::vector<unsigned>> node = parse_index_list(text.substr(kNode.size()));
    if (node && node->size() == 1) return PlacementWish{.kind = PlacementWish::Kind::kNode, .node = node->front()};
  } else if (text.starts_with(kCores)) {
    Result<std::vector<unsigned>> cpus = parse_index_list(text.substr(kCores.size()));
    if (cpus && !cpus->empty()) {
      return PlacementWish{.kind = PlacementWish::Kind::kCores, .cpus = std::move(*cpus)};
    }
  }
  return Status(Code::kInvalidArgument,
                fmt::format("placement is '{}'; legal: auto, off, node=N, cores=LIST (such as cores=0-3,8)", text));
}

}  // namespace fairlead
