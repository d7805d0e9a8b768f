// What a measurement looks like to programs (one JSON document) and to people (one table).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/base/json.h"
#include "bench/net/end_facts.h"
#include "bench/net/measured.h"
#include "fairlead/config.h"

namespace fairlead::bench {

/// What the first session's path leads over; empty or nothing: not known, or there is none.
struct LinkFacts {
  std::string name;  // of an interface, or what is in its place
  std::uint32_t mtu = 0;
  std::uint32_t payload = 0;  // the most that a packet carries
  std::optional<std::uint64_t> megabits = {};
  std::optional<std::uint64_t> buffer = {}, target_buffer = {};  // of receiving sockets, bytes
};

/// Where a measurement ran.
struct Setting {
  std::string transport;  // "verbs:soft0", "tcp"
  std::string device;
  std::string path;  // Peer::explain()
  bool local = false;
  std::optional<EndFacts> initiator = {};  // this end
  std::optional<EndFacts> target = {};     // the first one, if it says
  LinkFacts link = {};
  std::vector<std::string> warnings = {};  // what speaks against measuring here
  std::vector<std::string> targets = {};   // their places
  std::uint64_t sessions = 1;              // of each initiator with each target, for each direction
  std::uint64_t initiators = 1;
  bool interrupted = false;  // it ended before all was measured
  std::string error = {};    // if because it failed: why
};

/// "write", "read", "send", or of both directions at once "write+read".
[[nodiscard]] std::string_view op_name(const Plan& plan) noexcept;

/// "half_round_trip", "full_read", "completion_under_load", or with a rate "..._since_due"; docs/benchmarks.md says
/// from where to where.
[[nodiscard]] std::string_view latency_kind(const Plan& plan) noexcept;

[[nodiscard]] Json report(const Plan& plan, const EngineConfig& config, const Setting& setting,
                          std::span<const Measured> sizes);

/// A line per size, and one above them.
[[nodiscard]] std::string table_head(const Plan& plan);
[[nodiscard]] std::string table_line(const Sample& sample);
/// Below it, if it has parts.
[[nodiscard]] std::string part_line(const Share& part, std::uint64_t size);
/// Below the line of a size that was repeated.
[[nodiscard]] std::string repeats_line(const Measured& measured);
[[nodiscard]] std::string interval_line(const Interval& interval, std::uint64_t size);

/// The same figures for spreadsheets: names, then a line per size (RFC 4180; no field needs quotes).
[[nodiscard]] std::string csv_head();
[[nodiscard]] std::string csv_line(const Plan& plan, const Setting& setting, const Measured& measured);

}  // namespace fairlead::bench
