// How often a server's files were read again, for /metrics. Threads: written by the server's, read by any.
#pragma once

#include <atomic>
#include <cstdint>

#include "metrics/metric.h"

namespace fairlead::cli {

struct Reloads {
  std::atomic<std::uint64_t> done{0}, failed{0};
  [[nodiscard]] metrics::Metric metric() const;
};

}  // namespace fairlead::cli
