// Where metrics are served: "HOST:PORT", ":PORT", or a range, ":9471-9490", of which each process of a host takes the
// first port that is free. Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fairlead/status.h"

namespace fairlead::metrics {

struct PortRange {
  std::string host;  // empty: all addresses
  std::uint16_t first = 0, last = 0;
};

/// Errors: kInvalidArgument, naming the text.
Result<PortRange> parse_port_range(std::string_view text);

}  // namespace fairlead::metrics
