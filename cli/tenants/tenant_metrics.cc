#include "cli/tenants/tenant_metrics.h"

#include <array>
#include <string>

namespace fairlead::cli {
namespace {

using command::TenantStats;
using metrics::Kind;
using metrics::Metric;
using metrics::Sample;

std::string name_of(const TenantStats& tenant) {
  return tenant.name.empty() ? std::string(kAnonymousTenant) : tenant.name;
}

/// One sample a tenant.
template <typename Value>
Metric each(const std::vector<TenantStats>& tenants, const char* name, const char* help, Kind kind, Value value) {
  Metric metric{name, help, kind, {}};
  for (const TenantStats& tenant : tenants) {
    metric.samples.push_back({static_cast<double>(value(tenant)), {{"tenant", name_of(tenant)}}});
  }
  return metric;
}

Metric plain(const char* name, const char* help, Kind kind, std::uint64_t value) {
  return {name, help, kind, {{static_cast<double>(value), {}}}};
}

}  // namespace

std::vector<Metric> tenant_metrics(const command::ServiceStats& service, const std::vector<TenantStats>& tenants) {
  constexpr double kNanoseconds = 1e-9;
  Metric copied{"fairlead_tenant_copied_bytes_total", "Bytes copied to and from the device.", Kind::kCounter, {}};
  Metric failures{"fairlead_tenant_failures_total",
                  "Commands that failed, by how much of their session that ends.",
                  Kind::kCounter,
                  {}};
  for (const TenantStats& tenant : tenants) {
    const std::string name = name_of(tenant);
    copied.samples.push_back({static_cast<double>(tenant.bytes_in), {{"tenant", name}, {"direction", "in"}}});
    copied.samples.push_back({static_cast<double>(tenant.bytes_out), {{"tenant", name}, {"direction", "out"}}});
    constexpr std::array kScopes{"command", "stream", "context"};
    for (std::size_t i = 0; i < kScopes.size(); ++i) {
      failures.samples.push_back({static_cast<double>(tenant.failures[i]), {{"tenant", name}, {"scope", kScopes[i]}}});
    }
  }
  const auto total = [](const char* result, std::uint64_t value) {
    return Sample{static_cast<double>(value), {{"result", result}}};
  };
  return {
      plain("fairlead_gpu_sessions", "Sessions of command channels that are there now.", Kind::kGauge,
            service.sessions),
      {"fairlead_gpu_sessions_total",
       "Sessions of command channels, by how they began or were ended by the server.",
       Kind::kCounter,
       {total("begun", service.sessions_begun), total("refused", service.sessions_refused),
        total("ended_wrong", service.sessions_ended_wrong)}},
      plain("fairlead_gpu_resumptions_total", "Times that a client went on with its session over another connection.",
            Kind::kCounter, service.resumed),
      plain("fairlead_gpu_replies_total", "Replies to clients; one may cover 64 commands.", Kind::kCounter,
            service.replies),
      plain("fairlead_gpu_unknown_commands_total", "Commands of kinds that this release does not know, passed over.",
            Kind::kCounter, service.skipped_unknown),
      plain("fairlead_gpu_turn_overruns_total",
            "Turns at the device that took longer than others wait for; they ran beside it.", Kind::kCounter,
            service.turn_overruns),
      each(tenants, "fairlead_tenant_sessions", "Sessions of the tenant that are there now.", Kind::kGauge,
           [](const TenantStats& tenant) { return tenant.sessions; }),
      each(tenants, "fairlead_tenant_sessions_away",
           "Sessions of the tenant that are there now and wait for their clients to come back.", Kind::kGauge,
           [](const TenantStats& tenant) { return tenant.away; }),
      each(tenants, "fairlead_tenant_memory_bytes", "Memory of the device that the tenant has.", Kind::kGauge,
           [](const TenantStats& tenant) { return tenant.memory_bytes; }),
      each(tenants, "fairlead_tenant_commands_waiting", "Commands that have come and not run.", Kind::kGauge,
           [](const TenantStats& tenant) { return tenant.waiting; }),
      each(tenants, "fairlead_tenant_commands_total", "Commands that ran, or were passed over after a failure.",
           Kind::kCounter, [](const TenantStats& tenant) { return tenant.commands; }),
      std::move(copied),
      each(tenants, "fairlead_tenant_service_seconds_total", "Time that the tenant's commands took.", Kind::kCounter,
           [](const TenantStats& tenant) { return static_cast<double>(tenant.service_ns) * kNanoseconds; }),
      each(tenants, "fairlead_tenant_rejections_total", "Sessions and allocations beyond what the tenant may have.",
           Kind::kCounter, [](const TenantStats& tenant) { return tenant.rejections; }),
      std::move(failures),
  };
}

}  // namespace fairlead::cli
