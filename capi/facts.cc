// What there is, and what it has done; the log.
#include <atomic>

#include "capi/handles.h"
#include "capi/stats.h"
#include "capi/structures.h"
#include "fairlead/cuda.h"
#include "fairlead/log.h"
#include "fairlead/softroce.h"
#include "fairlead/version.h"

using namespace fairlead;        // NOLINT(google-build-using-namespace): a translation from one API to the other
using namespace fairlead::capi;  // NOLINT(google-build-using-namespace)

namespace {

std::atomic<fairlead_log_sink> sink{nullptr};

void pass_on(LogLevel level, std::string_view line) {
  if (const fairlead_log_sink to = sink.load(); to != nullptr) {
    to(static_cast<fairlead_log_level>(level), line.data(), line.size());
  }
}

}  // namespace

const char* fairlead_version() { return version().data(); }

void fairlead_set_log_sink(fairlead_log_sink to) {
  sink = to;
  set_log_sink(to != nullptr ? pass_on : nullptr);
}
void fairlead_set_log_level(fairlead_log_level level) {
  if (level >= 0 && level <= FAIRLEAD_LOG_OFF) set_log_level(static_cast<LogLevel>(level));
}

fairlead_code fairlead_engine_devices(const fairlead_engine* engine, const char* peer,
                                      void (*each)(void* context, const fairlead_device_info* device), void* context) {
  return outcome([&]() -> Status {
    if (engine == nullptr) return missing("engine");
    if (each == nullptr) return missing("each");
    for (const DeviceInfo& device : engine->engine->devices(text_of(peer))) {
      fairlead_device_info info = FAIRLEAD_INIT(fairlead_device_info);
      info.transport = device.transport.c_str();
      info.detail = device.detail.c_str();
      info.address = device.address.c_str();
      info.reason = device.reason.c_str();
      info.usable = device.usable;
      each(context, &info);
    }
    return {};
  });
}

fairlead_code fairlead_engine_get_stats(const fairlead_engine* engine, fairlead_engine_stats* stats) {
  return outcome([&]() -> Status {
    if (engine == nullptr) return missing("engine");
    const EngineStats from = engine->engine->stats();
    fairlead_engine_stats full = FAIRLEAD_INIT(fairlead_engine_stats);
    put_peer_stats(from.total, full);
    full.peers_connected = from.peers_connected;
    full.peers_lost = from.peers_lost;
    full.peers_failed = from.peers_failed;
    full.handshakes_refused = from.handshakes_refused;
    full.registered_bytes = from.registered_bytes;
    full.pool_bytes = from.pool.bytes;
    full.pool_blocks = from.pool.blocks;
    full.pool_used_bytes = from.pool.used_bytes;
    full.pool_cached_bytes = from.pool.cached_bytes;
    full.pool_given_back = from.pool.given_back;
    full.pool_given_back_bytes = from.pool.given_back_bytes;
    full.cache_hits = from.cache.hits;
    full.cache_misses = from.cache.misses;
    full.cache_evicted = from.cache.evicted;
    full.cache_invalidated = from.cache.invalidated;
    full.cache_registrations = from.cache.registrations;
    full.cache_bytes = from.cache.bytes;
    full.cuda_registered_bytes = from.cuda_registered_bytes;
    full.cuda_staging_bytes = from.cuda_staging_bytes;
    full.cuda_bytes_in = from.cuda_bytes_in;
    full.cuda_bytes_out = from.cuda_bytes_out;
    full.sleeps = from.sleeps;
    return give(full, stats, "fairlead_engine_stats");
  });
}

fairlead_code fairlead_engine_transports(const fairlead_engine* engine,
                                         void (*each)(void* context, const fairlead_transport_stats* transport),
                                         void* context) {
  return outcome([&]() -> Status {
    if (engine == nullptr) return missing("engine");
    if (each == nullptr) return missing("each");
    for (const TransportStats& from : engine->engine->stats().transports) {
      fairlead_transport_stats full = FAIRLEAD_INIT(fairlead_transport_stats);
      full.transport = from.transport.c_str();
      full.lane = from.lane;
      full.bytes_sent = from.bytes_sent;
      full.bytes_received = from.bytes_received;
      full.requests = from.requests;
      full.requests_in_flight = from.requests_in_flight;
      full.paths = from.paths;
      full.paths_opened = from.paths_opened;
      full.paths_lost = from.paths_lost;
      full.retransmissions = from.retransmissions.value_or(0);
      full.has_retransmissions = from.retransmissions.has_value();
      full.has_copied = from.copied.has_value();
      const CopiedBytes copied = from.copied.value_or(CopiedBytes());
      full.copied_mapped = copied.mapped;
      full.copied_streamed = copied.streamed;
      full.copied_by_kernel = copied.by_kernel;
      full.copied_through_rings = copied.through_rings;
      each(context, &full);
    }
    return {};
  });
}

size_t fairlead_engine_placement(const fairlead_engine* engine, char* text, size_t size) {
  return value_of(std::size_t{0}, [&] {
    return put_text(engine != nullptr ? engine->engine->placement().to_string() : std::string(), text, size);
  });
}

fairlead_code fairlead_cuda_devices(void (*each)(void* context, const char* name, const char* detail, const char* how),
                                    void* context) {
  return outcome([&]() -> Status {
    if (each == nullptr) return missing("each");
    const auto devices = cuda_devices();
    if (!devices) return devices.error();
    for (const CudaDeviceInfo& device : *devices) {
      each(context, device.name.c_str(), device.detail.c_str(), device.how.c_str());
    }
    return {};
  });
}

fairlead_code fairlead_softroce_devices(void (*each)(void* context, const char* name, const char* address,
                                                     const char* program, uint32_t process),
                                        void* context) {
  return outcome([&]() -> Status {
    if (each == nullptr) return missing("each");
    for (const SoftroceDevice& device : softroce_devices()) {
      each(context, device.name.c_str(), device.address.c_str(), device.program.c_str(), device.process);
    }
    return {};
  });
}
