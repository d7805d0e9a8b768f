// The HTTP endpoint: GET /metrics (Prometheus text format, by prometheus-cpp) and GET /healthz ("ok").
//
// Threads: two of its own answer requests. Destroying it takes up to two seconds (civetweb joins its threads), so keep
// one per process.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "fairlead/status.h"
#include "metrics/metric.h"

namespace fairlead::metrics {

class MetricsServer {
 public:
  /// `host_port`: "HOST:PORT" or ":PORT" (all IPv4 addresses); port 0 takes a free one. `source` must stay callable
  /// until the server is destroyed. Errors: a bad address, the port in use.
  static Result<std::unique_ptr<MetricsServer>> start(std::string_view host_port, MetricSource source);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  /// "host:port" with the real port.
  [[nodiscard]] const std::string& address() const noexcept { return address_; }

 private:
  struct Impl;
  MetricsServer();
  std::unique_ptr<Impl> impl_;
  std::string address_;
};

}  // namespace fairlead::metrics
