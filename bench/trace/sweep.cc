#include "bench/trace/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

namespace fairlead::bench {
namespace {

constexpr double kPointsPerDecade = 40, kFewestPerDecade = 4;
constexpr double kCallsPerDecade = 4e6;  // that are emulated for a drawing: long traces have coarser curves

struct Unit {
  std::string_view name;
  double size;
};
constexpr Unit kTimes[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}};
constexpr Unit kRates[] = {{"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}};

template <std::size_t kUnits>
Result<std::vector<double>> parse_list(std::string_view text, const Unit (&units)[kUnits], double least, double most,
                                       std::size_t count, std::string_view legal) {
  std::vector<double> values;
  for (bool more = true; more;) {
    const std::size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    double value = 0;
    const auto [rest, error] = std::from_chars(item.data(), item.data() + item.size(), value, std::chars_format::fixed);
    const std::string_view suffix(rest, static_cast<std::size_t>(item.data() + item.size() - rest));
    double size = 0;
    for (const Unit& unit : units) size = unit.name == suffix ? unit.size : size;
    value *= size;
    if (error != std::errc() || !(value >= least && value <= most) || values.size() == count) {
      return Status(Code::kInvalidArgument, fmt::format("'{}' is not legal here (legal: {})", item, legal));
    }
    values.push_back(value);
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
  }
  return values;
}

template <std::size_t kUnits>
std::string format(double value, const Unit (&units)[kUnits], std::string_view behind) {
  std::size_t unit = 0;
  while (unit + 1 < kUnits && value >= units[unit + 1].size * 0.9995) ++unit;
  return fmt::format("{:.3g} {}{}", value / units[unit].size, units[unit].name, behind);
}

}  // namespace

Result<std::vector<double>> parse_round_trips(std::string_view text) {
  Result<std::vector<double>> values =
      parse_list(text, kTimes, 1, 1e9, 32, "1us,5us,0.2ms: rising, of ns, us or ms, 1ns to 1000ms, at most 32");
  for (std::size_t i = 1; values && i < values->size(); ++i) {
    if ((*values)[i] <= (*values)[i - 1]) {
      return Status(Code::kInvalidArgument, fmt::format("'{}' does not rise: {} comes after {}", text,
                                                        format_ns((*values)[i]), format_ns((*values)[i - 1])));
    }
  }
  return values;
}

Result<std::vector<double>> parse_bandwidths(std::string_view text) {
  return parse_list(text, kRates, 1e3, 1e15, 8, "10G,2.5G: bits a second, of K, M, G or T, 1K to 1000T, at most 8");
}

std::string format_ns(double ns) { return format(ns, kTimes, ""); }
std::string format_bandwidth(double bits_per_second) { return format(bits_per_second, kRates, "b/s"); }

Sweep sweep(const Trace& trace, const std::vector<double>& round_trips, const std::vector<double>& bandwidths,
            const EmulatedDevice& device) {
  Sweep all;
  const EmulatedStep local = emulate_local(trace, device);
  all.local_ns = local.step_ns;
  all.rule_ns = local.waits != 0 ? kBearable * local.step_ns / static_cast<double>(local.waits) : 0;
  for (const double bandwidth : bandwidths) {
    Curve curve{.bits_per_second = bandwidth,
                .points = {},
                .between = {},
                .longest_rtt_ns = longest_round_trip(trace, bandwidth, kBearable, device)};
    const auto point = [&](double rtt_ns) -> Curve::Point {
      const double step = emulate_remote(trace, {rtt_ns, bandwidth}, device).step_ns;
      return {rtt_ns, step, all.local_ns > 0 ? step / all.local_ns - 1 : 0};
    };
    for (const double rtt_ns : round_trips) curve.points.push_back(point(rtt_ns));
    const double decades = std::log10(round_trips.back() / round_trips.front());
    const double fine = kCallsPerDecade / static_cast<double>(trace.records.size());
    const double steps = std::ceil(decades * std::clamp(fine, kFewestPerDecade, kPointsPerDecade));
    for (double i = 0; i <= steps; ++i) {
      curve.between.push_back(point(round_trips.front() * std::pow(10, steps > 0 ? decades * i / steps : 0)));
    }
    all.curves.push_back(std::move(curve));
  }
  return all;
}

Json::Object to_json(const Sweep& sweep) {
  Json::Array curves;
  for (const Curve& curve : sweep.curves) {
    Json::Array points;
    for (const Curve::Point& point : curve.points) {
      points.emplace_back(
          Json::Object{{"rtt_ns", point.rtt_ns}, {"step_ns", point.step_ns}, {"overhead", point.overhead}});
    }
    curves.emplace_back(Json::Object{{"bits_per_second", curve.bits_per_second},
                                     {"longest_rtt_ns", curve.longest_rtt_ns ? Json(*curve.longest_rtt_ns) : Json()},
                                     {"points", std::move(points)}});
  }
  return {{"local_step_ns", sweep.local_ns},
          {"bearable_overhead", kBearable},
          {"rule_rtt_ns", sweep.rule_ns},
          {"curves", std::move(curves)}};
}

}  // namespace fairlead::bench
