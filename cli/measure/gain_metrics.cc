#include "cli/measure/gain_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

namespace fairlead::cli {
namespace {

using bench::Verdict;
using metrics::Kind;
using metrics::Metric;
using Labels = std::vector<std::pair<std::string, std::string>>;

/// A figure's unit is in its metric's name, so figures of several units have several metrics.
struct Figure {
  bench::Metric metric;
  const char* name;
  const char* help;
  double unit;                                                     // what 1 of the figure is
  std::pair<const char*, const char*> label = {nullptr, nullptr};  // that tells it from others of the same name
};
constexpr Figure kFigures[] = {
    {bench::Metric::kBandwidth, "fairlead_gain_bytes_per_second", "Payload a second, the median of the blocks.", 1},
    {bench::Metric::kBytesPerCpuSecond, "fairlead_gain_bytes_per_cpu_second",
     "Payload for each second of both ends' processors, the median of the blocks.", 1},
    {bench::Metric::kInitiatorCpu,
     "fairlead_gain_cpu_seconds_per_gigabyte",
     "Processor time of an end for 10^9 bytes of payload, the median of the blocks.",
     1,
     {"end", "initiator"}},
    {bench::Metric::kTargetCpu, "fairlead_gain_cpu_seconds_per_gigabyte", "", 1, {"end", "target"}},
    {bench::Metric::kLatencyP50,
     "fairlead_gain_latency_seconds",
     "Percentiles of latency, the median of the blocks.",
     1e-9,
     {"percentile", "50"}},
    {bench::Metric::kLatencyP99, "fairlead_gain_latency_seconds", "", 1e-9, {"percentile", "99"}},
    {bench::Metric::kSamplesPerSecond, "fairlead_gain_samples_per_second",
     "Samples of training a second, the median of the blocks.", 1},
};

class Findings {
 public:
  explicit Findings(const bench::GainReport& report)
      : sides_{{"baseline", report.baseline.transport}, {"candidate", report.candidate.transport}} {}

  void add(const bench::Comparison& each, const std::string& role) {
    Labels labels = sides_;
    labels.emplace_back("role", role);
    labels.emplace_back("metric", name_of(each.metric));
    labels.emplace_back("size", fmt::format("{}", each.size));
    ratio_.samples.push_back({each.ratio.ratio, labels});
    low_.samples.push_back({each.ratio.low, labels});
    high_.samples.push_back({each.ratio.high, labels});
    confidence_.samples.push_back({each.ratio.confidence, labels});
    if (role != "control") add_figures(each);
  }

  std::vector<Metric> take(Metric verdict, Metric equal) {
    std::vector<Metric> all = {std::move(verdict), std::move(equal), std::move(ratio_),
                               std::move(low_),    std::move(high_), std::move(confidence_)};
    std::ranges::move(figures_, std::back_inserter(all));
    return all;
  }
  [[nodiscard]] const Labels& sides() const { return sides_; }

 private:
  void add_figures(const bench::Comparison& each) {
    const Figure* const figure = std::ranges::find(kFigures, each.metric, &Figure::metric);
    if (figure == std::ranges::end(kFigures)) return;
    auto metric = std::ranges::find(figures_, figure->name, &Metric::name);
    if (metric == figures_.end()) metric = figures_.insert(metric, {figure->name, figure->help, Kind::kGauge, {}});
    for (const auto& [side, value] : {std::pair{0U, each.baseline}, {1U, each.candidate}}) {
      Labels labels = {
          {"side", sides_[side].first}, {"transport", sides_[side].second}, {"size", fmt::format("{}", each.size)}};
      if (figure->label.first != nullptr) labels.emplace_back(figure->label.first, figure->label.second);
      metric->samples.push_back({value * figure->unit, std::move(labels)});
    }
  }

  Labels sides_;
  Metric ratio_{"fairlead_gain_ratio", "How many times better the candidate is.", Kind::kGauge, {}};
  Metric low_{"fairlead_gain_ratio_low", "Where the interval of the ratio begins.", Kind::kGauge, {}};
  Metric high_{"fairlead_gain_ratio_high", "Where the interval of the ratio ends.", Kind::kGauge, {}};
  Metric confidence_{"fairlead_gain_ratio_confidence",
                     "How sure it is that the ratio lies in its interval: 0 to 1.",
                     Kind::kGauge,
                     {}};
  std::vector<Metric> figures_;
};

Metric verdict_metric(const bench::GainReport& report, const Labels& sides) {
  const bench::Comparison* const primary = report.analysis.primary();
  const Verdict holds = primary != nullptr ? primary->verdict : Verdict::kInconclusive;
  Metric metric{"fairlead_gain_verdict", "1: this is the verdict of the primary comparison.", Kind::kGauge, {}};
  for (const Verdict each : {Verdict::kCandidate, Verdict::kBaseline, Verdict::kNoDifference, Verdict::kInconclusive,
                             Verdict::kUnequalTerms}) {
    Labels labels = sides;
    labels.emplace_back("verdict", verdict_word(report, each));
    metric.samples.push_back({each == holds ? 1.0 : 0.0, std::move(labels)});
  }
  return metric;
}

}  // namespace

std::vector<Metric> gain_metrics(const bench::GainReport& report) {
  Findings findings(report);
  for (const bench::Comparison& each : report.analysis.results)
    findings.add(each, each.primary ? "primary" : "secondary");
  if (report.analysis.control) findings.add(*report.analysis.control, "control");
  return findings.take(verdict_metric(report, findings.sides()),
                       {"fairlead_gain_equal_terms",
                        "1: what has to be equal was.",
                        Kind::kGauge,
                        {{report.analysis.equal_terms ? 1.0 : 0.0, findings.sides()}}});
}

}  // namespace fairlead::cli
