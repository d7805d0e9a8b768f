#include "cli/measure/result_metrics.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace fairlead::cli {
namespace {

using metrics::Kind;
using metrics::Metric;
using Labels = std::vector<std::pair<std::string, std::string>>;

constexpr double kNanosecond = 1e-9;
constexpr double kPercentiles[] = {0, 50, 90, 99, 99.9, 100};

Labels labels_of(const bench::Plan& plan, const bench::Setting& setting, const bench::Sample& sample) {
  return {{"transport", setting.transport},
          {"kind", std::string(to_string(plan.kind))},
          {"op", std::string(op_name(plan))},
          {"size", fmt::format("{}", sample.size)}};
}

Labels with(Labels labels, const char* name, std::string value) {
  labels.emplace_back(name, std::move(value));
  return labels;
}

}  // namespace

std::vector<Metric> result_metrics(const bench::Plan& plan, std::span<const MeasuredSide> sides) {
  Metric rate{"fairlead_bench_bytes_per_second", "Payload a second.", Kind::kGauge, {}};
  Metric messages{"fairlead_bench_messages_per_second", "Operations a second.", Kind::kGauge, {}};
  Metric latency{
      "fairlead_bench_latency_seconds", "Percentiles of latency; 0 is the least, 100 the most.", Kind::kGauge, {}};
  Metric cpu{"fairlead_bench_cpu_seconds_per_gigabyte",
             "Processor time of an end for 10^9 bytes of payload.",
             Kind::kGauge,
             {}};
  Metric verified{"fairlead_bench_verified", "1: the data was checked, and right.", Kind::kGauge, {}};
  for (const MeasuredSide& side : sides) {
    for (const bench::Measured& measured : side.sizes) {
      const bench::Sample& sample = measured.sample;
      const Labels labels = labels_of(plan, *side.setting, sample);
      const auto operations = static_cast<double>(sample.iterations);
      rate.samples.push_back({bench::bytes_per_second(sample), labels});
      messages.samples.push_back({sample.seconds > 0 ? operations / sample.seconds : 0, labels});
      for (const double percent : kPercentiles) {
        latency.samples.push_back({static_cast<double>(sample.latency.percentile(percent)) * kNanosecond,
                                   with(with(labels, "latency_kind", std::string(latency_kind(plan))), "percentile",
                                        fmt::format("{:g}", percent))});
      }
      for (const auto& [end, use] : {std::pair{"initiator", &sample.initiator_cpu}, {"target", &sample.target_cpu}}) {
        if (sample.iterations > 0) cpu.samples.push_back({per_gb(*use, sample), with(labels, "end", end)});
      }
      verified.samples.push_back({sample.verified ? 1.0 : 0.0, labels});
    }
  }
  return {rate, messages, latency, cpu, verified};
}

}  // namespace fairlead::cli
