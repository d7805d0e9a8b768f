#include "metrics/server.h"

#include <CivetServer.h>
#include <fmt/format.h>
#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>

#include <cerrno>
#include <cstring>
#include <future>
#include <mutex>

#include "fairlead/config.h"
#include "fairlead/log.h"

namespace fairlead::metrics {
namespace {

prometheus::MetricFamily to_family(const Metric& metric) {
  prometheus::MetricFamily family;
  family.name = metric.name;
  family.help = metric.help;
  family.type = metric.kind == Kind::kCounter ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge;
  for (const Sample& sample : metric.samples) {
    prometheus::ClientMetric& out = family.metric.emplace_back();
    for (const auto& [name, value] : sample.labels) out.label.push_back({name, value});
    (metric.kind == Kind::kCounter ? out.counter.value : out.gauge.value) = sample.value;
  }
  return family;
}

class Collector : public prometheus::Collectable {
 public:
  explicit Collector(MetricSource source) : source_(std::move(source)) {}
  [[nodiscard]] std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> families;
    // civetweb's threads have 100 KiB of stack; whoever hands in metrics need not know.
    const std::vector<Metric> metrics = std::async(std::launch::async, source_).get();
    families.reserve(metrics.size());
    for (const Metric& metric : metrics) families.push_back(to_family(metric));
    return families;
  }

 private:
  MetricSource source_;
};

// The Exposer serves metrics only; requests for anything else pass here first. 0: not handled.
int answer_health(mg_connection* connection) {
  const mg_request_info* request = mg_get_request_info(connection);
  if (request == nullptr || request->local_uri == nullptr || std::string_view(request->local_uri) != "/healthz")
    return 0;
  constexpr std::string_view kBody = "ok\n";
  mg_printf(connection,
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
            kBody.size());
  mg_write(connection, kBody.data(), kBody.size());
  return 200;
}

// What civetweb has to say about a failed start; it has no other way to tell.
std::mutex g_complaint_mutex;
std::string g_complaint;  // guarded by g_complaint_mutex

int take_complaint(const mg_connection*, const char* message) {
  const std::lock_guard lock(g_complaint_mutex);
  if (g_complaint.empty()) g_complaint = message;
  log(LogLevel::kDebug, message);
  return 1;
}

std::string complaint() {
  const std::lock_guard lock(g_complaint_mutex);
  return g_complaint.empty() ? "no reason given" : std::exchange(g_complaint, {});
}

}  // namespace

struct MetricsServer::Impl {
  std::shared_ptr<Collector> collector;
  std::unique_ptr<prometheus::Exposer> exposer;  // goes first: it joins the threads that use the collector
};

MetricsServer::MetricsServer() : impl_(std::make_unique<Impl>()) {}
MetricsServer::~MetricsServer() = default;

Result<std::unique_ptr<MetricsServer>> MetricsServer::start(std::string_view host_port, MetricSource source) {
  const Result<HostPort> where = parse_host_port(host_port);
  if (!where) return where.error();
  const bool v6 = where->host.find(':') != std::string::npos;
  const std::string host = where->host.empty() ? "0.0.0.0" : v6 ? fmt::format("[{}]", where->host) : where->host;

  std::unique_ptr<MetricsServer> server(new MetricsServer);
  CivetCallbacks callbacks;
  callbacks.begin_request = &answer_health;
  callbacks.log_message = &take_complaint;
  try {
    server->impl_->exposer = std::make_unique<prometheus::Exposer>(
        std::vector<std::string>{"listening_ports", fmt::format("{}:{}", host, where->port), "num_threads", "2"},
        &callbacks);
  } catch (const std::exception&) {
    const std::string why = complaint();
    const bool taken = why.find(std::strerror(EADDRNOTAVAIL)) == std::string::npos;
    return Status(taken ? Code::kAlreadyExists : Code::kNotFound,
                  fmt::format("cannot serve metrics on {}:{}: {}; choose {}", host, where->port, why,
                              taken ? "another port, or port 0 for a free one" : "an address of this host"));
  }
  const std::vector<int> ports = server->impl_->exposer->GetListeningPorts();
  if (ports.empty())
    return Status(Code::kUnavailable, fmt::format("cannot serve metrics on {}: {}", host, complaint()));
  server->impl_->collector = std::make_shared<Collector>(std::move(source));
  server->impl_->exposer->RegisterCollectable(server->impl_->collector);
  server->address_ = fmt::format("{}:{}", host, ports.front());
  return server;
}

}  // namespace fairlead::metrics
