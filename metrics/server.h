// The HTTP endpoint: GET /metrics (Prometheus text format, by prometheus-cpp) and GET /healthz ("ok").
//
// One thread of its own answers all requests, none of which can hold up another: a connection has five seconds from its
// beginning to its end, and the oldest of 64 gives way to a new one.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "fairlead/status.h"
#include "metrics/metric.h"

namespace fairlead::metrics {

class MetricsServer {
 public:
  /// `host_port`: "HOST:PORT" or ":PORT" (all addresses, IPv4 and IPv6); port 0 takes a free one. `source` must stay
  /// callable until the server is destroyed. Errors: a bad address, the port in use.
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
