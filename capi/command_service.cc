#include "fairlead/command_service.h"

#include <chrono>

#include "capi/executors.h"
#include "capi/handles.h"
#include "capi/structures.h"

using namespace fairlead;        // NOLINT(google-build-using-namespace): a translation from one API to the other
using namespace fairlead::capi;  // NOLINT(google-build-using-namespace)

struct fairlead_service {
  explicit fairlead_service(command::Service&& made)
      : service(std::make_shared<command::Service>(std::move(made))),
        engine(std::shared_ptr<Engine>(service, &service->engine())) {}
  ~fairlead_service() { service->stop(); }  // metrics of its engine may still be there
  fairlead_service(const fairlead_service&) = delete;
  fairlead_service& operator=(const fairlead_service&) = delete;

  std::shared_ptr<command::Service> service;
  fairlead_engine engine;
};

namespace {

/// What has the same name and kind in C and C++, either way.
template <typename To, typename From>
void copy_numbers(To& to, const From& from) {
  to.payload_credit = from.payload_credit;
  to.held_results = from.held_results;
  to.module_bytes = from.module_bytes;
  to.module_cache_bytes = from.module_cache_bytes;
  to.graph_bytes = from.graph_bytes;
  to.max_sessions = from.max_sessions;
  to.channels = from.channels;
  to.credits = from.credits;
  to.graph_records = from.graph_records;
  to.most_away = from.most_away;
  to.window_bytes = from.window_bytes;
}

fairlead_service_config config_of(const command::ServiceConfig& from) {
  fairlead_service_config to = FAIRLEAD_INIT(fairlead_service_config);
  to.longest_turn_ns = std::chrono::nanoseconds(from.longest_turn).count();
  to.keep_away_ns = std::chrono::nanoseconds(from.keep_away).count();
  copy_numbers(to, from);
  to.sharing = static_cast<fairlead_sharing>(from.sharing);
  return to;
}

Status tenants_of(const fairlead_tenant* const* from, std::size_t count, std::vector<command::Tenant>& to) {
  for (std::size_t i = 0; i < count; ++i) {
    if (from == nullptr || from[i] == nullptr) return missing("a tenant");
    fairlead_tenant known = FAIRLEAD_INIT(fairlead_tenant);
    if (Status status = take(*from[i], known, "fairlead_tenant"); !status.ok()) return status;
    to.push_back({.name = std::string(text_of(known.name)),
                  .memory_bytes = known.memory_bytes,
                  .sessions = known.sessions,
                  .channels = known.channels,
                  .credits = known.credits,
                  .bytes_per_second = known.bytes_per_second,
                  .share = known.share,
                  .devices = numbers_of(known.devices, known.device_count)});
  }
  return {};
}

Status devices_of(const fairlead_served_device* const* from, std::size_t count,
                  std::vector<command::ServedDevice>& to) {
  for (std::size_t i = 0; i < count; ++i) {
    if (from == nullptr || from[i] == nullptr) return missing("a device");
    fairlead_served_device known = FAIRLEAD_INIT(fairlead_served_device);
    if (Status status = take(*from[i], known, "fairlead_served_device"); !status.ok()) return status;
    command::ServedDevice& device = to.emplace_back();
    device.name = text_of(known.name);
    if (known.executors != nullptr) device.executors = known.executors->factory;
  }
  return {};
}

Status config_of(const fairlead_service_config& from, command::ServiceConfig& to) {
  if (Status status = check_enum(from.sharing, FAIRLEAD_SHARING_FIXED, "sharing"); !status.ok()) return status;
  if (from.executors != nullptr) to.executors = from.executors->factory;
  to.where = from.in_turn ? command::ServiceConfig::Where::kInTurn : command::ServiceConfig::Where::kOwnThread;
  if (Status status = names_of(from.program, from.program_count, to.program); !status.ok()) return status;
  to.longest_turn =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::nanoseconds(from.longest_turn_ns));
  to.keep_away = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::nanoseconds(from.keep_away_ns));
  copy_numbers(to, from);
  to.sharing = static_cast<command::Sharing>(from.sharing);
  if (Status status = devices_of(from.devices, from.device_count, to.devices); !status.ok()) return status;
  return tenants_of(from.tenants, from.tenant_count, to.tenants);
}

/// C's of one tenant, whose name and devices it points at.
struct StatsOfTenant {
  explicit StatsOfTenant(const command::TenantStats& from) {
    full.name = from.name.c_str();
    full.sessions = from.sessions;
    full.memory_bytes = from.memory_bytes;
    full.waiting = from.waiting;
    full.commands = from.commands;
    full.bytes_in = from.bytes_in;
    full.bytes_out = from.bytes_out;
    full.service_ns = from.service_ns;
    full.rejections = from.rejections;
    std::copy(from.failures.begin(), from.failures.end(), full.failures);
    full.away = from.away;
    devices.reserve(from.devices.size());
    for (const command::TenantDeviceStats& each : from.devices) {
      fairlead_tenant_device_stats& device = devices.emplace_back();
      device.struct_size = sizeof device;
      device.memory_bytes = each.memory_bytes;
      device.commands = each.commands;
      device.bytes_in = each.bytes_in;
      device.bytes_out = each.bytes_out;
      device.service_ns = each.service_ns;
      std::copy(each.failures.begin(), each.failures.end(), device.failures);
      all.push_back(&device);
    }
    full.devices = all.data();
    full.device_count = all.size();
  }
  fairlead_tenant_stats full = FAIRLEAD_INIT(fairlead_tenant_stats);
  std::vector<fairlead_tenant_device_stats> devices;
  std::vector<const fairlead_tenant_device_stats*> all;
};

}  // namespace

void fairlead_service_config_init(fairlead_service_config* config, size_t struct_size) {
  if (config == nullptr) return;
  config->struct_size = struct_size;
  (void)outcome([&] { return give(config_of(command::ServiceConfig()), config, "fairlead_service_config"); });
}

fairlead_code fairlead_service_start(fairlead_engine* engine, const fairlead_service_config* config,
                                     fairlead_service** service) {
  const bool others = engine != nullptr && !engine->own;  // a service's, and part of it: not ours to end
  const std::unique_ptr<fairlead_engine> taken(others ? nullptr : engine);
  return outcome([&]() -> Status {
    clear(service);
    if (engine == nullptr) return missing("engine");
    if (others) return {Code::kInvalidArgument, "this engine is a service's already"};
    if (config == nullptr) return missing("config");
    if (service == nullptr) return missing("service");
    if (engine->engine.use_count() > 1) {  // they look at what is moved away here
      return {Code::kInvalidArgument,
              "metrics of this engine are served: release them before, and serve those of fairlead_service_engine()"};
    }
    fairlead_service_config known = config_of(command::ServiceConfig());
    if (Status status = take(*config, known, "fairlead_service_config"); !status.ok()) return status;
    command::ServiceConfig wanted;
    if (Status status = config_of(known, wanted); !status.ok()) return status;
    Status status =
        hand_over([&] { return command::Service::start(std::move(*engine->engine), std::move(wanted)); }, service);
    if (status.ok()) {
      (*service)->engine.require = std::move(engine->require);
      (*service)->engine.forbid = std::move(engine->forbid);
    }
    return status;
  });
}

size_t fairlead_service_listen_address(const fairlead_service* service, char* text, size_t size) {
  return value_of(std::size_t{0}, [&] {
    return put_text(service != nullptr ? service->service->listen_address() : std::string(), text, size);
  });
}

fairlead_engine* fairlead_service_engine(fairlead_service* service) {
  return service != nullptr ? &service->engine : nullptr;
}

fairlead_code fairlead_service_get_stats(const fairlead_service* service, fairlead_service_stats* stats) {
  return outcome([&]() -> Status {
    if (service == nullptr) return missing("service");
    const command::ServiceStats from = service->service->stats();
    fairlead_service_stats full = FAIRLEAD_INIT(fairlead_service_stats);
    full.sessions = from.sessions;
    full.sessions_begun = from.sessions_begun;
    full.sessions_refused = from.sessions_refused;
    full.sessions_ended_wrong = from.sessions_ended_wrong;
    full.commands = from.commands;
    full.failures = from.failures;
    full.skipped_unknown = from.skipped_unknown;
    full.replies = from.replies;
    full.modules_cached = from.modules_cached;
    full.modules_sent = from.modules_sent;
    full.turn_overruns = from.turn_overruns;
    full.leaving = from.leaving;
    full.away = from.away;
    full.resumed = from.resumed;
    return give(full, stats, "fairlead_service_stats");
  });
}

fairlead_code fairlead_service_tenants(const fairlead_service* service,
                                       void (*each)(void* context, const fairlead_tenant_stats* tenant),
                                       void* context) {
  return outcome([&]() -> Status {
    if (service == nullptr) return missing("service");
    if (each == nullptr) return missing("each");
    for (const command::TenantStats& from : service->service->tenants()) {
      const StatsOfTenant stats(from);
      each(context, &stats.full);
    }
    return {};
  });
}

fairlead_code fairlead_service_set_tenants(fairlead_service* service, const fairlead_tenant* const* tenants,
                                           size_t count) {
  return outcome([&]() -> Status {
    if (service == nullptr) return missing("service");
    std::vector<command::Tenant> all;
    if (Status status = tenants_of(tenants, count, all); !status.ok()) return status;
    return service->service->set_tenants(std::move(all));
  });
}

void fairlead_service_drain(fairlead_service* service) {
  if (service != nullptr) service->service->drain();
}
void fairlead_service_stop(fairlead_service* service) {
  if (service != nullptr) service->service->stop();
}
void fairlead_service_destroy(fairlead_service* service) {
  (void)outcome([&]() -> Status {
    delete service;
    return {};
  });
}
