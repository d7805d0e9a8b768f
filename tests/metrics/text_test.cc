// The text, beside what Prometheus' own library makes of the same.
#include "metrics/text.h"

#include <gmock/gmock.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace fairlead::metrics {
namespace {

prometheus::MetricFamily to_family(const Metric& metric) {
  prometheus::MetricFamily family;
  family.name = metric.name;
  family.help = metric.help;
  family.type = metric.kind == Kind::kCounter ? prometheus::MetricType::Counter
                : metric.kind == Kind::kGauge ? prometheus::MetricType::Gauge
                                              : prometheus::MetricType::Histogram;
  for (const Sample& sample : metric.samples) {
    prometheus::ClientMetric& out = family.metric.emplace_back();
    for (const auto& [name, value] : sample.labels) out.label.push_back({name, value});
    out.counter.value = out.gauge.value = sample.value;
    out.histogram.sample_count = sample.distribution.count;
    out.histogram.sample_sum = sample.distribution.sum;
    for (const auto& [most, count] : sample.distribution.buckets) out.histogram.bucket.push_back({count, most});
    out.histogram.bucket.push_back({sample.distribution.count, std::numeric_limits<double>::infinity()});
  }
  return family;
}

// A number says the same in several ways: those of lines, and of buckets, as this program writes them.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    const std::size_t value = line.rfind(' ');
    if (line.front() != '#') {
      line = line.substr(0, value + 1) + std::to_string(std::strtod(line.c_str() + value, nullptr));
      if (const std::size_t bucket = line.find("le=\""); bucket != std::string::npos) {
        const std::size_t end = line.find('"', bucket + 4);
        line.replace(bucket, end - bucket, std::to_string(std::strtod(line.c_str() + bucket + 4, nullptr)));
      }
    }
    lines.push_back(line);
  }
  return lines;
}

TEST(MetricsText, IsWhatPrometheusLibraryWrites) {
  const std::vector<Metric> all{
      {"fairlead_a_total", "Something.", Kind::kCounter, {{0, {}}, {1.0 / 3, {{"x", "a\"b\\c\nd"}, {"y", ""}}}}},
      {"fairlead_b_bytes",
       "Large and small.",
       Kind::kGauge,
       {{1e18, {}},
        {-1, {{"a", "1"}}},
        {1e-9, {{"a", "2"}}},
        {1700000000.125, {{"a", "3"}}},
        {std::nan(""), {{"a", "4"}}},
        {std::numeric_limits<double>::infinity(), {{"a", "5"}}},
        {-std::numeric_limits<double>::infinity(), {{"a", "6"}}}}},
      {"fairlead_c_seconds", "None.", Kind::kHistogram, {{0, {}, {}}}},
      {"fairlead_d_seconds",
       "Some.",
       Kind::kHistogram,
       {{0, {{"op", "push"}}, {.buckets = {{0.001, 1}, {1, 2}, {60, 3}}, .count = 4, .sum = 123.5}}}},
      {"fairlead_e", "Nothing.", Kind::kGauge, {}}};
  std::vector<prometheus::MetricFamily> families;
  for (const Metric& metric : all) families.push_back(to_family(metric));
  const std::string ours = text_of(all);
  EXPECT_EQ(lines_of(ours), lines_of(prometheus::TextSerializer().Serialize(families))) << ours;
  EXPECT_THAT(ours, testing::HasSubstr("\nfairlead_a_total{x=\"a\\\"b\\\\c\\nd\",y=\"\"} 0.3333333333333333\n"));
  EXPECT_THAT(ours, testing::HasSubstr("\nfairlead_b_bytes{a=\"3\"} 1700000000.125\n"));
}

TEST(MetricsText, KeepsAHelpToItsLine) {
  EXPECT_EQ(text_of({{"fairlead_a", "A \\ and\na \"line\".", Kind::kGauge, {}}}),
            "# HELP fairlead_a A \\\\ and\\na \"line\".\n# TYPE fairlead_a gauge\n");
}

}  // namespace
}  // namespace fairlead::metrics
