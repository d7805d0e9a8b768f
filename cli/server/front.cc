#include "cli/server_front.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "bench/base/build_info.h"
#include "bench/base/file_output.h"
#include "bench/base/json.h"
#include "cli/softroce_metrics.h"
#include "fairlead/softroce.h"
#include "metrics/engine_metrics.h"

namespace fairlead::cli {

using metrics::Metric;

Result<std::unique_ptr<metrics::MetricsServer>> start_metrics(const std::string& host_port, Engine& engine,
                                                              std::function<std::vector<Metric>()> own) {
  if (host_port.empty()) return std::unique_ptr<metrics::MetricsServer>();
  return metrics::MetricsServer::start(host_port, [&engine, own = std::move(own)] {
    std::vector<Metric> all = metrics::engine_metrics(engine.stats());
    const auto add = [&all](std::vector<Metric> more) { std::ranges::move(more, std::back_inserter(all)); };
    add(metrics::placement_metrics(engine.placement()));
    const bench::BuildInfo& build = bench::build_info();
    all.push_back(
        metrics::build_metric(std::string(build.version), std::string(build.commit), std::string(build.build_type)));
    add(own());
    add(softroce_metrics(softroce_devices(), static_cast<std::uint32_t>(::getpid())));
    return all;
  });
}

Status announce(const Announcement& what, Console& console) {
  console.line("listening on " + what.listen);
  if (what.named_no_host) {
    console.line(
        "that is for this host alone; --listen 0.0.0.0:PORT serves other hosts, and everybody who reaches it there");
  }
  if (!what.metrics.empty()) console.line(fmt::format("metrics on http://{}/metrics", what.metrics));
  if (what.ready_file.empty()) return {};
  const bench::Json::Object ready{{"listen", what.listen}, {"metrics", what.metrics}};
  return bench::write_text(what.ready_file, bench::Json(ready).dump() + "\n");
}

}  // namespace fairlead::cli
