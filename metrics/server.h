// The HTTP endpoint: GET /metrics (Prometheus' text format), GET /healthz ("ok"), and pages of
// whoever starts it.
//
// One thread of its own answers all requests, none of which can hold up another: a connection has five seconds from its
// beginning to its end, and the oldest of 64 gives way to a new one. fork(): the child's copy does nothing.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fairlead/status.h"
#include "metrics/metric.h"

namespace fairlead::metrics {

/// What a page says now; not `ok`: 503 Service Unavailable.
struct PageText {
  bool ok = true;
  std::string body;
  std::string type = "text/plain; charset=utf-8";
};
struct Page {
  std::string path;  // "/readyz"
  std::function<PageText()> make;
};

class MetricsServer {
 public:
  /// `host_port`: "HOST:PORT" or ":PORT" (all addresses, IPv4 and IPv6); port 0 takes a free one, "HOST:PORT-LAST" the
  /// first of these that is free (port_range.h). `source` and `pages` are called on the server's thread, and must stay
  /// callable until it is destroyed. Errors: a bad address, the port in use.
  static Result<std::unique_ptr<MetricsServer>> start(std::string_view host_port, MetricSource source,
                                                      std::vector<Page> pages = {});
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
