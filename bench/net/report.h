// What a measurement looks like to programs (one JSON document) and to people (one table).
#pragma once

#include <span>
#include <string>

#include "bench/base/json.h"
#include "bench/net/options.h"
#include "fairlead/config.h"

namespace fairlead::bench {

/// Where a measurement ran.
struct Setting {
  std::string transport;  // "verbs:soft0", "tcp"
  std::string device;
  std::string path;  // Peer::explain()
  bool local = false;
};

/// "half_round_trip", "full_read" or "completion_under_load"; docs/benchmarks.md says from where to where.
[[nodiscard]] std::string_view latency_kind(const Plan& plan) noexcept;

[[nodiscard]] Json report(const Plan& plan, const EngineConfig& config, const Setting& setting,
                          std::span<const Sample> samples);

/// A line per size, and one above them.
[[nodiscard]] std::string table_head(const Plan& plan);
[[nodiscard]] std::string table_line(const Sample& sample);

}  // namespace fairlead::bench
