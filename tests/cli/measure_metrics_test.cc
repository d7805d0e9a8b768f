// Results as metrics: each figure under its unit, what holds as 1, and files that a reader takes whole.
#include <gmock/gmock.h>

#include <filesystem>
#include <map>

#include "cli/measure/gain_metrics.h"
#include "cli/measure/prometheus_file.h"
#include "cli/measure/result_metrics.h"
#include "tests/golden.h"

namespace fairlead::cli {
namespace {

using metrics::Metric;
using Labels = std::vector<std::pair<std::string, std::string>>;

bench::Measured measured_of(std::uint64_t size, std::uint64_t count) {
  bench::Measured measured;
  measured.sample.size = size;
  measured.sample.iterations = count;
  measured.sample.seconds = 2;
  measured.sample.initiator_cpu = {.user = 0.75, .system = 0.25, .softirq = 9};
  measured.sample.target_cpu = {.user = 0.5};
  for (std::uint64_t i = 1; i <= 100; ++i) measured.sample.latency.record(i);
  return measured;
}

// The value of the one sample that has all these labels.
double value_of(const std::vector<Metric>& all, std::string_view name, const Labels& labels) {
  const auto metric = std::ranges::find(all, name, &Metric::name);
  std::vector<double> found;
  if (metric != all.end()) {
    for (const metrics::Sample& sample : metric->samples) {
      const auto has = [&](const auto& label) { return std::ranges::count(sample.labels, label) == 1; };
      if (std::ranges::all_of(labels, has)) found.push_back(sample.value);
    }
  }
  EXPECT_EQ(found.size(), 1U) << name;
  return found.empty() ? -1 : found.front();
}

TEST(ResultMetrics, AreInSecondsAndBytesForEachSideAndSize) {
  bench::Plan plan;
  plan.op = bench::Op::kRead;
  const bench::Setting tcp{"tcp", "", ""}, verbs{"verbs:soft0", "", ""};
  const std::vector<bench::Measured> sizes = {measured_of(1'000'000, 1000), measured_of(8, 10)};
  const std::vector<MeasuredSide> sides = {{&tcp, {&sizes[0], 1}}, {&verbs, sizes}};
  const std::vector<Metric> all = result_metrics(plan, sides);
  const Labels large = {{"transport", "verbs:soft0"}, {"kind", "bw"}, {"op", "read"}, {"size", "1000000"}};
  EXPECT_DOUBLE_EQ(value_of(all, "fairlead_bench_bytes_per_second", large), 5e8);
  EXPECT_DOUBLE_EQ(value_of(all, "fairlead_bench_messages_per_second", large), 500);
  const auto at = [&](const char* label, const char* value) {
    Labels more = large;
    more.emplace_back(label, value);
    return more;
  };
  EXPECT_DOUBLE_EQ(value_of(all, "fairlead_bench_latency_seconds", at("percentile", "0")), 1e-9);
  EXPECT_DOUBLE_EQ(value_of(all, "fairlead_bench_latency_seconds", at("percentile", "99")), 99e-9);
  EXPECT_DOUBLE_EQ(value_of(all, "fairlead_bench_latency_seconds", at("percentile", "100")), 100e-9);
  EXPECT_DOUBLE_EQ(value_of(all, "fairlead_bench_cpu_seconds_per_gigabyte", at("end", "initiator")), 1);
  EXPECT_DOUBLE_EQ(value_of(all, "fairlead_bench_cpu_seconds_per_gigabyte", at("end", "target")), 0.5);
  EXPECT_EQ(value_of(all, "fairlead_bench_verified", large), 0);
  EXPECT_EQ(all.front().samples.size(), 3U);
  plan.op = bench::Op::kWrite;
  plan.bidirectional = true;
  EXPECT_DOUBLE_EQ(value_of(result_metrics(plan, sides), "fairlead_bench_bytes_per_second",
                            {{"op", "write+read"}, {"size", "1000000"}, {"transport", "tcp"}}),
                   5e8)
      << "both directions' sum is not a write's";
  bench::Measured slow;
  for (const std::uint64_t ns : {48'393U, 48'500U})
    slow.sample.latency.record(ns);  // the least is exact, in no step's middle
  const MeasuredSide side{&tcp, {&slow, 1}};
  EXPECT_DOUBLE_EQ(value_of(result_metrics(plan, {&side, 1}), "fairlead_bench_latency_seconds", {{"percentile", "0"}}),
                   48'393e-9);
}

bench::Comparison compared(bench::Metric metric, double baseline, double candidate, bench::Ratio ratio) {
  bench::Comparison each;
  each.metric = metric;
  each.size = 65536;
  each.baseline = baseline;
  each.candidate = candidate;
  each.ratio = ratio;
  return each;
}

bench::GainReport gain_of(bench::Verdict verdict) {
  bench::GainReport report;
  report.baseline.transport = "tcp";
  report.candidate.transport = "verbs:mlx5_0";
  std::vector<bench::Comparison>& results = report.analysis.results;
  results = {compared(bench::Metric::kBandwidth, 1e9, 2e9, {.ratio = 2, .low = 1.5, .high = 2.5, .confidence = 0.95}),
             compared(bench::Metric::kLatencyP99, 5000, 4000, {.ratio = 1.25, .low = 1, .high = 1.5})};
  results.front().primary = true;
  results.front().verdict = verdict;
  return report;
}

TEST(GainMetrics, HaveFiguresRatiosAndTheOneVerdictThatHolds) {
  const std::vector<Metric> all = gain_metrics(gain_of(bench::Verdict::kCandidate));
  EXPECT_EQ(value_of(all, "fairlead_gain_verdict", {{"verdict", "rdma_faster"}}), 1);
  for (const char* other : {"tcp_faster", "no_difference", "inconclusive", "unequal_terms"})
    EXPECT_EQ(value_of(all, "fairlead_gain_verdict", {{"verdict", other}}), 0) << other;
  const Labels primary = {{"baseline", "tcp"}, {"candidate", "verbs:mlx5_0"}, {"role", "primary"}, {"size", "65536"}};
  EXPECT_EQ(value_of(all, "fairlead_gain_ratio", primary), 2);
  EXPECT_EQ(value_of(all, "fairlead_gain_ratio_low", primary), 1.5);
  EXPECT_EQ(value_of(all, "fairlead_gain_ratio_high", primary), 2.5);
  EXPECT_EQ(value_of(all, "fairlead_gain_ratio_confidence", primary), 0.95);
  EXPECT_EQ(value_of(all, "fairlead_gain_bytes_per_second", {{"side", "candidate"}}), 2e9);
  EXPECT_DOUBLE_EQ(value_of(all, "fairlead_gain_latency_seconds", {{"side", "baseline"}, {"percentile", "99"}}), 5e-6);
  EXPECT_EQ(value_of(all, "fairlead_gain_equal_terms", {}), 0);
}

TEST(GainMetrics, WithoutAQuadAreInconclusive) {
  bench::GainReport report = gain_of(bench::Verdict::kCandidate);
  report.analysis.results.clear();
  EXPECT_EQ(value_of(gain_metrics(report), "fairlead_gain_verdict", {{"verdict", "inconclusive"}}), 1);
}

TEST(PrometheusFile, HoldsWhatAReaderTakes) {
  const std::string path = testing::TempDir() + "results.prom";
  const Labels size = {{"size", "8"}};
  ASSERT_TRUE(write_prometheus_file(path, {{"fairlead_x", "X.", metrics::Kind::kGauge, {{1, size}, {2, size}, {3, {}}}},
                                           {"fairlead_empty", "None.", metrics::Kind::kGauge, {}}})
                  .ok());
  EXPECT_EQ(file_text(path), "# HELP fairlead_x X.\n# TYPE fairlead_x gauge\nfairlead_x{size=\"8\"} 1\nfairlead_x 3\n");
  EXPECT_TRUE(write_prometheus_file("", {}).ok());
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace fairlead::cli
