// What every server shows: where it listens, its metrics, and the file that says it is ready.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/base/console.h"
#include "fairlead/engine.h"
#include "fairlead/status.h"
#include "metrics/metric.h"
#include "metrics/server.h"

namespace fairlead::cli {

/// Of the engine, this build, and softroce's devices here; `own`: what the server adds. Null: `host_port` is empty.
Result<std::unique_ptr<metrics::MetricsServer>> start_metrics(const std::string& host_port, Engine& engine,
                                                              std::function<std::vector<metrics::Metric>()> own);

struct Announcement {
  std::string listen, metrics;
  std::string ready_file;      // empty: none
  bool named_no_host = false;  // so it is this host alone that is served
};
/// Errors: the ready file cannot be written.
Status announce(const Announcement& what, Console& console);

}  // namespace fairlead::cli
