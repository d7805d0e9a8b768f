// What every server has around its service: where it listens, its metrics and how Prometheus finds them, the file and
// the service manager that are told when it is ready, what it answers to those who ask whether it is (/readyz), and the
// signals that have it read its files again or end.
//
// Order: Front, begin(), open(), ready(), then signals() and a loop that polls for poll_ms() and calls alive().
// Threads: one; metrics and pages are asked for by another.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/base/json.h"
#include "cli/base/args.h"
#include "cli/base/console.h"
#include "cli/server/ready_file.h"
#include "cli/server/service_manager.h"
#include "cli/server/signals.h"
#include "fairlead/engine.h"
#include "fairlead/status.h"
#include "metrics/discovery.h"
#include "metrics/metric.h"
#include "metrics/server.h"

namespace fairlead::cli {

struct FrontOptions {
  std::string metrics, discovery, ready_file;
  double drain = 20;           // seconds
  double drain_least = 0;      // seconds
  bool named_no_host = false;  // so it is this host alone that is served
};

/// --metrics, --metrics-discovery, --ready-file, --drain, --drain-least, --log-format, --log-level, --config. `drains`:
/// what is waited for when the server ends.
void add_front_options(Args& args, FrontOptions* options, const std::string& drains);

class Front {
 public:
  /// Before there are other threads. `service`: "serve", a label of metrics.
  Front(FrontOptions options, std::string service, Console& console);

  /// Takes away a ready file of a server that is there no more. Errors: what would keep ready() from working later.
  [[nodiscard]] Status begin() const;
  /// What is served until this object goes.
  struct Exposition {
    std::unique_ptr<metrics::MetricsServer> server;  // null: no metrics
    std::optional<metrics::Discovery> discovery;
  };
  /// Begins to serve metrics (of the engine, this build, the process, softroce's devices here, and `own`), /readyz,
  /// which says "starting", and /status, to which `own_status` adds. Both must stay callable as long as the exposition,
  /// which the front must outlive.
  Result<Exposition> open(Engine& engine, std::function<std::vector<metrics::Metric>()> own,
                          std::function<void(bench::Json::Object&)> own_status);
  /// Still starting: shown by /readyz and the service manager, which waits for so much longer.
  void starting(std::string_view what, std::chrono::seconds longer);
  /// Says where it listens, to people, in the ready file, to the service manager and to /readyz.
  Status ready(const std::string& listen);

  /// `signal_fd`: of catch_signals(). Draining and reloading are told to whom they concern.
  [[nodiscard]] ServerSignals signals(int signal_fd, ServerSignals::Served served);
  /// The smaller of both; -1 is for ever.
  [[nodiscard]] int poll_ms(int other) const;
  void alive() { manager_.alive(); }

 private:
  enum class State : std::uint8_t { kStarting, kReady, kDraining };
  [[nodiscard]] static std::string_view word(State state);

  FrontOptions options_;
  std::string service_;
  Console& console_;
  ServiceManager manager_;
  std::atomic<State> state_{State::kStarting};
  const std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  std::string metrics_address_;
  std::string listen_;  // written before state_ is kReady, and not after
  ReadyFile ready_file_;
};

}  // namespace fairlead::cli
