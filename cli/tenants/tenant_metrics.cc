#include "cli/tenants/tenant_metrics.h"

#include <array>
#include <string>
#include <utility>

namespace fairlead::cli {
namespace {

using command::TenantDeviceStats;
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

/// One a tenant and device.
template <typename Value>
Metric each_device(const std::vector<TenantStats>& tenants, const char* name, const char* help, Kind kind,
                   Value value) {
  Metric metric{name, help, kind, {}};
  for (const TenantStats& tenant : tenants) {
    for (std::size_t i = 0; i < tenant.devices.size(); ++i) {
      metric.samples.push_back({static_cast<double>(value(tenant.devices[i])),
                                {{"tenant", name_of(tenant)}, {"device", std::to_string(i)}}});
    }
  }
  return metric;
}

Metric plain(const char* name, const char* help, Kind kind, std::uint64_t value) {
  return {name, help, kind, {{static_cast<double>(value), {}}}};
}

}  // namespace

std::vector<Metric> tenant_metrics(const command::ServiceStats& service, const std::vector<TenantStats>& tenants,
                                   const std::vector<std::string>& devices) {
  constexpr double kNanoseconds = 1e-9;
  Metric copied{"fairlead_tenant_copied_bytes_total", "Bytes copied to and from the device.", Kind::kCounter, {}};
  Metric failures{"fairlead_tenant_failures_total",
                  "Commands that failed, by how much of their session that ends.",
                  Kind::kCounter,
                  {}};
  const auto add = [](Metric& to, const TenantStats& tenant, std::size_t device, std::pair<const char*, const char*> of,
                      std::uint64_t value) {
    to.samples.push_back({static_cast<double>(value),
                          {{"tenant", name_of(tenant)}, {"device", std::to_string(device)}, {of.first, of.second}}});
  };
  for (const TenantStats& tenant : tenants) {
    for (std::size_t device = 0; device < tenant.devices.size(); ++device) {
      const TenantDeviceStats& there = tenant.devices[device];
      add(copied, tenant, device, {"direction", "in"}, there.bytes_in);
      add(copied, tenant, device, {"direction", "out"}, there.bytes_out);
      constexpr std::array kScopes{"command", "stream", "context"};
      for (std::size_t i = 0; i < kScopes.size(); ++i) {
        add(failures, tenant, device, {"scope", kScopes[i]}, there.failures[i]);
      }
    }
  }
  Metric info{"fairlead_gpu_device_info",
              "1, for each device that is served: its number, and what it is called.",
              Kind::kGauge,
              {}};
  for (std::size_t device = 0; device < devices.size(); ++device) {
    info.samples.push_back({1, {{"device", std::to_string(device)}, {"name", devices[device]}}});
  }
  const auto total = [](const char* result, std::uint64_t value) {
    return Sample{static_cast<double>(value), {{"result", result}}};
  };
  return {
      std::move(info),
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
      each_device(tenants, "fairlead_tenant_memory_bytes", "Memory of the device that the tenant has.", Kind::kGauge,
                  [](const TenantDeviceStats& there) { return there.memory_bytes; }),
      each(tenants, "fairlead_tenant_commands_waiting", "Commands that have come and not run.", Kind::kGauge,
           [](const TenantStats& tenant) { return tenant.waiting; }),
      each_device(tenants, "fairlead_tenant_commands_total", "Commands that ran, or were passed over after a failure.",
                  Kind::kCounter, [](const TenantDeviceStats& there) { return there.commands; }),
      std::move(copied),
      each_device(tenants, "fairlead_tenant_service_seconds_total", "Time that the tenant's commands took.",
                  Kind::kCounter,
                  [](const TenantDeviceStats& there) { return static_cast<double>(there.service_ns) * kNanoseconds; }),
      each(tenants, "fairlead_tenant_rejections_total", "Sessions and allocations beyond what the tenant may have.",
           Kind::kCounter, [](const TenantStats& tenant) { return tenant.rejections; }),
      std::move(failures),
  };
}

}  // namespace fairlead::cli
