#include "cli/measure/prometheus_file.h"

#include <set>
#include <string_view>
#include <utility>

#include "bench/base/file_output.h"
#include "metrics/text.h"

namespace fairlead::cli {
namespace {

using Labels = std::vector<std::pair<std::string, std::string>>;

}  // namespace

void add_prometheus_file(Args& args, std::string* file) {
  args.option("--prometheus-file", "FILE",
              "Write the results as Prometheus reads them, for node_exporter's textfile collector (docs/metrics.md)",
              [file](std::string_view text) {
                *file = text;
                return text == "-" ? Status(Code::kInvalidArgument,
                                            "'-' is not legal here (legal: a file, such as "
                                            "/var/lib/prometheus/node-exporter/fairlead.prom)")
                                   : Status();
              });
}

Status write_prometheus_file(const std::string& file, std::vector<metrics::Metric> metrics) {
  if (file.empty()) return {};
  std::erase_if(metrics, [](const metrics::Metric& metric) { return metric.samples.empty(); });
  for (metrics::Metric& metric : metrics) {
    std::set<Labels> seen;
    std::erase_if(metric.samples, [&](const metrics::Sample& sample) { return !seen.insert(sample.labels).second; });
  }
  return bench::write_text(file, metrics::text_of(metrics));
}

}  // namespace fairlead::cli
