// docs/metrics.md lists what the code exports: its tables are what this test makes of the code.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <set>

#include "cli/measure/gain_metrics.h"
#include "cli/measure/result_metrics.h"
#include "cli/serve_metrics.h"
#include "cli/tenants/tenant_metrics.h"
#include "metrics/engine_metrics.h"
#include "metrics/process_metrics.h"
#include "tests/golden.h"

namespace fairlead::cli {
namespace {

using metrics::Kind;
using metrics::Metric;

// Of labels that name things, the values are no part of the page.
const std::set<std::string> kOpen{"lane",   "transport", "tenant",     "owner",   "node", "version",  "commit",
                                  "device", "name",      "build_type", "address", "size", "baseline", "candidate"};

// Everything that a metric may depend on is there.
std::vector<Metric> of_every_server() {
  EngineStats stats;
  stats.pool.arenas = {{"ordinary", 1, 1}, {"transparent", 1, 1}, {"2M", 1, 1}, {"1G", 1, 1}};
  stats.transports = {{.transport = "tcp", .retransmissions = 0}, {.transport = "shm", .copied = CopiedBytes{}}};
  std::vector<Metric> all = metrics::engine_metrics(stats);
  const auto add = [&all](std::vector<Metric> more) { std::ranges::move(more, std::back_inserter(all)); };
  add({metrics::session_metric({{"tcp", "connecting", 1}, {"tcp", "ready", 1}, {"tcp", "recovering", 1}})});
  add(metrics::reason_metrics(Tally()));
  PlacementReport placement;
  placement.lanes = {{.pinned = true, .cpus = {0}}};
  placement.pool_pages = {1};
  placement.shares = {{.transport = "tcp", .bytes_per_second = 1}};
  add(metrics::placement_metrics(placement));
  add({metrics::ready_metric(true), metrics::build_metric("0", "0", "0")});
  add(metrics::process_metrics());
  return all;
}

class MetricsPage : public testing::Test {
 protected:
  MetricsPage() : engine_(make_engine()), store_(&engine_, 1 << 20) {}

  static Engine make_engine() {
    EngineConfig config;
    config.transport = "tcp";
    return *Engine::create(config);
  }

  std::vector<Metric> of_serve() {
    const FileTensor tensor{"w", "U8", {1}, 0, 1};
    auto model = *ModelStore::lay_out("m", {ModelFile{"m", {}, 1}}, {{tensor, {}}});
    EXPECT_TRUE(model->allocate(engine_).ok() && store_.keep(model));
    return serve_metrics(counters_, store_);
  }
  static std::vector<Metric> of_a_gpu_server() {
    command::TenantStats tenant;
    tenant.name = "trainer";
    tenant.devices.resize(1);
    return tenant_metrics({}, {tenant}, {"cuda:0"});
  }

  static std::vector<Metric> of_bench() {
    bench::Measured measured;
    measured.sample.size = measured.sample.iterations = 1;
    const bench::Setting setting{"tcp", "", ""};
    const MeasuredSide side{&setting, {&measured, 1}};
    bench::Plan plan;
    std::vector<Metric> all = result_metrics(plan, {&side, 1});
    for (const bench::Op op : {bench::Op::kWrite, bench::Op::kRead, bench::Op::kSend}) {
      plan.kind = bench::Kind::kLatency;
      plan.op = op;
      const std::vector<Metric> more = result_metrics(plan, {&side, 1});
      for (std::size_t i = 0; i < all.size(); ++i)
        std::ranges::copy(more[i].samples, std::back_inserter(all[i].samples));
    }
    bench::Plan others;
    others.bidirectional = true;
    for (const auto& [kind, rate] :
         {std::pair{bench::Kind::kBandwidth, 0.0}, {bench::Kind::kBandwidth, 1.0}, {bench::Kind::kLatency, 1.0}}) {
      others.kind = kind;
      others.rate = rate;
      others.bidirectional &= rate == 0;
      const std::vector<Metric> more = result_metrics(others, {&side, 1});
      for (std::size_t i = 0; i < all.size(); ++i)
        std::ranges::copy(more[i].samples, std::back_inserter(all[i].samples));
    }
    return all;
  }
  static std::vector<Metric> of_gain() {
    bench::GainReport report;
    report.baseline.transport = "tcp";
    report.candidate.transport = "verbs:soft0";
    std::vector<bench::Comparison>& results = report.analysis.results;
    for (const bench::Metric metric : bench::kMetrics) results.emplace_back().metric = metric;
    results.emplace_back().metric = bench::Metric::kSamplesPerSecond;
    results.front().primary = true;
    report.analysis.control = results.front();
    return gain_metrics(report);
  }

  Engine engine_;
  ModelStore store_;
  ServeCounters counters_;
};

std::string labels(const Metric& metric) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<std::string>> values;
  for (const metrics::Sample& sample : metric.samples) {
    for (const auto& [name, value] : sample.labels) {
      if (!values.contains(name)) order.push_back(name);
      auto& seen = values[name];
      if (std::ranges::find(seen, value) == seen.end()) seen.push_back(value);
    }
  }
  std::string text;
  for (const std::string& name : order) {
    text += fmt::format("{}`{}`", text.empty() ? "" : "; ", name);
    if (kOpen.contains(name)) continue;
    std::string_view between = ": ";
    for (const std::string& value : values[name]) text += fmt::format("{}`{}`", std::exchange(between, ", "), value);
  }
  return text;
}

std::string table(const std::vector<Metric>& all) {
  constexpr const char* kKinds[] = {"counter", "gauge", "histogram"};
  std::string text = "| metric | type | labels | what it is |\n| --- | --- | --- | --- |\n";
  for (const Metric& metric : all) {
    text += fmt::format("| `{}` | {} | {} | {} |\n", metric.name, kKinds[static_cast<std::size_t>(metric.kind)],
                        labels(metric), metric.help);
  }
  return text;
}

// What stands between two lines of the page.
void put(std::string& page, const std::string& name, const std::string& text) {
  const std::string begin = fmt::format("<!-- {}: generated from the code -->\n", name);
  const std::string end = "<!-- end -->\n";
  const std::size_t from = page.find(begin);
  ASSERT_NE(from, std::string::npos) << name;
  const std::size_t to = page.find(end, from);
  ASSERT_NE(to, std::string::npos) << name;
  page.replace(from + begin.size(), to - from - begin.size(), text);
}

TEST_F(MetricsPage, IsWhatTheCodeExports) {
  const std::string path = FAIRLEAD_SOURCE "/docs/metrics.md";
  std::string page = file_text(path);
  put(page, "every server", table(of_every_server()));
  put(page, "serve", table(of_serve()));
  put(page, "serve --gpu", table(of_a_gpu_server()));
  put(page, "bench", table(of_bench()));
  put(page, "gain", table(of_gain()));
  expect_golden(path, page);
}

// Else a rate does not see the first of them.
TEST_F(MetricsPage, KnownCausesAndStatesAreThereBeforeTheirFirstEvent) {
  const Tally none;
  const std::vector<Metric> reasons = metrics::reason_metrics(none);
  ASSERT_EQ(reasons.size(), 4U);
  for (const Metric& metric : reasons) {
    EXPECT_FALSE(metric.samples.empty()) << metric.name;
    for (const metrics::Sample& sample : metric.samples) EXPECT_EQ(sample.value, 0) << metric.name;
  }
  EXPECT_EQ(metrics::session_metric({{"tcp", "ready", 2}}).samples.size(), 3U);
  EXPECT_EQ(metrics::session_metric({{"", "connecting", 2}}).samples.size(), 1U);
  Tally one;
  one.handshakes_refused.add(Code::kUnimplemented);
  EXPECT_EQ(metrics::reason_metrics(one).back().samples.size(), reasons.back().samples.size() + 1) << "another cause";
}

TEST_F(MetricsPage, NamesAreOursAndWellFormedAndNoneIsThereTwice) {
  std::vector<Metric> all = of_every_server();
  std::ranges::move(of_serve(), std::back_inserter(all));
  std::ranges::move(of_a_gpu_server(), std::back_inserter(all));
  std::ranges::move(of_bench(), std::back_inserter(all));
  std::ranges::move(of_gain(), std::back_inserter(all));
  std::set<std::string> names;
  for (const Metric& metric : all) {
    SCOPED_TRACE(metric.name);
    EXPECT_TRUE(names.insert(metric.name).second);
    EXPECT_TRUE(metric.name.starts_with("fairlead_") || metric.name.starts_with("process_"));
    EXPECT_EQ(metric.name.ends_with("_total"), metric.kind == Kind::kCounter);
    EXPECT_TRUE(metric.help.ends_with('.'));
    EXPECT_FALSE(metric.samples.empty()) << "a family that says nothing";
    for (const metrics::Sample& sample : metric.samples) {
      EXPECT_TRUE(std::isfinite(sample.value) && std::isfinite(sample.distribution.sum));
    }
  }
}

}  // namespace
}  // namespace fairlead::cli
