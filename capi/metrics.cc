// Metrics of an engine, for Prometheus.
#include "fairlead/metrics.h"

#include "capi/handles.h"

using namespace fairlead;        // NOLINT(google-build-using-namespace): a translation from one API to the other
using namespace fairlead::capi;  // NOLINT(google-build-using-namespace)

struct fairlead_metrics {
  std::shared_ptr<Engine> engine;  // stays where the metrics look at it
  Metrics metrics;
};

fairlead_code fairlead_metrics_serve(fairlead_engine* engine, const char* listen, const char* discovery,
                                     const char* service, fairlead_metrics** metrics) {
  return outcome([&]() -> Status {
    clear(metrics);
    if (engine == nullptr) return missing("engine");
    if (metrics == nullptr) return missing("metrics");
    MetricsConfig config;
    config.listen = text_of(listen);
    config.discovery = text_of(discovery);
    if (service != nullptr) config.service = service;
    return hand_over(
        [&]() -> Result<fairlead_metrics> {
          auto served = Metrics::serve(*engine->engine, config);
          if (!served) return served.error();
          return fairlead_metrics{engine->engine, *std::move(served)};
        },
        metrics);
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
