// Metrics of an engine, for Prometheus.
#include "fairlead/metrics.h"

#include "capi/handles.h"

using namespace fairlead;        // NOLINT(google-build-using-namespace): a translation from one API to the other
using namespace fairlead::capi;  // NOLINT(google-build-using-namespace)

struct fairlead_metrics {
  Metrics metrics;
};

fairlead_code fairlead_metrics_serve(fairlead_engine* engine, const char* listen, const char* discovery,
                                     const char* service, fairlead_metrics** metrics) {
  return outcome([&]() -> Status {
    if (engine == nullptr) return missing("engine");
    if (metrics == nullptr) return missing("metrics");
    *metrics = nullptr;
    MetricsConfig config;
    config.listen = text_of(listen);
    config.discovery = text_of(discovery);
    if (service != nullptr) config.service = service;
    return hand_over([&] { return Metrics::serve(*engine->engine, config); }, metrics);
  });
}

size_t fairlead_metrics_address(const fairlead_metrics* metrics, char* text, size_t size) {
  return value_of(std::size_t{0}, [&] {
    return put_text(metrics != nullptr ? metrics->metrics.address() : std::string(), text, size);
  });
}

void fairlead_metrics_release(fairlead_metrics* metrics) { delete metrics; }

size_t fairlead_engine_metrics_text(const fairlead_engine* engine, char* text, size_t size) {
  return value_of(std::size_t{0}, [&] {
    return put_text(engine != nullptr ? metrics_text(*engine->engine) : std::string(), text, size);
  });
}
