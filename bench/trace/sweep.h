// The emulator over many links: when is a device elsewhere nearly as good as one here? As figures and as curves.
// Threads: functions without state.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/base/json.h"
#include "bench/trace/emulator.h"

namespace fairlead::bench {

/// How much longer a step may take: what is called "within 5 %".
inline constexpr double kBearable = 0.05;

/// "1us,5us,20us": whole or decimal numbers of ns, us or ms, rising, 1 ns to 1 s, at most 32. As ns.
Result<std::vector<double>> parse_round_trips(std::string_view text);
/// "10G,2.5G": numbers of K, M, G or T bits a second, powers of 1000, 1K to 1000T, at most 8.
Result<std::vector<double>> parse_bandwidths(std::string_view text);
/// "12.3 us", "850 ns"; "25 Gb/s".
[[nodiscard]] std::string format_ns(double ns);
[[nodiscard]] std::string format_bandwidth(double bits_per_second);

struct Curve {
  struct Point {
    double rtt_ns = 0, step_ns = 0, overhead = 0;  // 0.05: a step takes 1.05 times the local one
  };
  double bits_per_second = 0;
  std::vector<Point> points;             // of the round trips that were asked for
  std::vector<Point> between;            // and finely from the first of them to the last, for drawing
  std::optional<double> longest_rtt_ns;  // within kBearable; nullopt: even without any it takes longer
};

struct Sweep {
  double local_ns = 0;        // a step, the device here
  double rule_ns = 0;         // kBearable of it for each call that waits: the rule of thumb
  std::vector<Curve> curves;  // one a bandwidth
};

[[nodiscard]] Sweep sweep(const Trace& trace, const std::vector<double>& round_trips,
                          const std::vector<double>& bandwidths, const EmulatedDevice& device);
/// {"local_step_ns", "rule_rtt_ns", "curves": [{"bits_per_second", "longest_rtt_ns", "points": [...]}]}
[[nodiscard]] Json::Object to_json(const Sweep& sweep);

/// The curves as one SVG document: overhead over round trip, both logarithmic; the line of 5 %, and the need that is
/// published for it, 5 to 20 us at 100s of Gb/s (arXiv 2401.13354). Curves differ in their dashes and are named, so
/// nothing depends on a colour.
[[nodiscard]] std::string draw(const Sweep& sweep, const Trace& trace);

}  // namespace fairlead::bench
