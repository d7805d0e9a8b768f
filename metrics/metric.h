// A metric as Fairlead's parts hand it in; the Prometheus library stays behind server.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace fairlead::metrics {

enum class Kind : std::uint8_t { kCounter, kGauge };

struct Sample {
  double value = 0;
  std::vector<std::pair<std::string, std::string>> labels;
};

/// Named fairlead_*, with the unit last (_bytes, _seconds) and _total for counters. docs/metrics.md lists them all.
struct Metric {
  std::string name;
  std::string help;
  Kind kind = Kind::kCounter;
  std::vector<Sample> samples;
};

/// Called once per scrape, from a thread of its own. Must not throw.
using MetricSource = std::function<std::vector<Metric>()>;

}  // namespace fairlead::metrics
