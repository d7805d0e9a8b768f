// A metric as Fairlead's parts hand it in.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace fairlead::metrics {

enum class Kind : std::uint8_t { kCounter, kGauge, kHistogram };

/// What was observed, by how much it was at most.
struct Distribution {
  struct Bucket {
    double most = 0;
    std::uint64_t count = 0;  // of those that are no more than that
  };
  std::vector<Bucket> buckets;  // ascending, without the one that has no bound
  std::uint64_t count = 0;      // of all
  double sum = 0;
};

struct Sample {
  double value = 0;  // a histogram's: unused
  std::vector<std::pair<std::string, std::string>> labels;
  Distribution distribution = {};  // a histogram's
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
