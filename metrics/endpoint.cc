// The public API's part of this folder.
#include <optional>
#include <utility>

#include "fairlead/metrics.h"
#include "metrics/discovery.h"
#include "metrics/engine_metrics.h"
#include "metrics/process.h"
#include "metrics/server.h"
#include "metrics/text.h"

namespace fairlead::inline v0 {
namespace {

std::vector<metrics::Metric> all_of(const Engine& engine) {
  std::vector<metrics::Metric> all = metrics::metrics_of(engine);
  all.push_back(metrics::build_metric());
  return all;
}

}  // namespace

struct Metrics::Impl {
  std::unique_ptr<metrics::MetricsServer> server;
  std::optional<metrics::Discovery> discovery;  // goes before what it tells of
};

Result<Metrics> Metrics::serve(Engine& engine, const MetricsConfig& config) {
  auto started = metrics::MetricsServer::start(config.listen, [&engine] { return all_of(engine); });
  if (!started) return started.error();
  auto impl = std::make_unique<Impl>();
  impl->server = *std::move(started);
  if (!config.discovery.empty()) {
    auto found = metrics::Discovery::announce(config.discovery, impl->server->address(), config.service);
    if (!found) return found.error();
    impl->discovery.emplace(*std::move(found));
  }
  return Metrics(std::move(impl));
}

Metrics::Metrics(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Metrics::Metrics(Metrics&&) noexcept = default;
Metrics& Metrics::operator=(Metrics&&) noexcept = default;
Metrics::~Metrics() = default;

std::string Metrics::address() const { return impl_ != nullptr ? impl_->server->address() : std::string(); }

std::string metrics_text(Engine& engine) { return metrics::text_of(all_of(engine)); }

}  // namespace fairlead::inline v0
