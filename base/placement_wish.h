// What EngineConfig::placement asks for. Threads: functions without state.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "fairlead/status.h"

namespace fairlead {

struct PlacementWish {
  enum class Kind : std::uint8_t { kAuto, kOff, kNode, kCores };
  Kind kind = Kind::kAuto;
  unsigned node = 0;                // kNode: a NUMA node, the system's index
  std::vector<unsigned> cpus = {};  // kCores: hardware threads, the system's indexes, ascending; at least one
};

/// "auto", "off", "node=N" or "cores=LIST" (0-3,8). Errors: kInvalidArgument, with what is legal.
[[nodiscard]] Result<PlacementWish> parse_placement(std::string_view text);

}  // namespace fairlead
