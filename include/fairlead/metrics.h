// What an engine and its process count, for Prometheus: one call, in a program of yours (docs/metrics.md lists it all).
#pragma once

#include <memory>
#include <string>

#include "fairlead/engine.h"
#include "fairlead/export.h"
#include "fairlead/status.h"

namespace fairlead::inline v0 {

struct MetricsConfig {
  /// "HOST:PORT", or ":PORT" for all addresses; port 0 takes a free one, "HOST:PORT-LAST" the first of these that is
  /// free, so that the processes of a host do not clash. Whoever reaches it may read it.
  std::string listen = {};
  /// A folder for a file that tells Prometheus where that is (file_sd), and goes with it; empty: none.
  std::string discovery = {};
  std::string service = "engine";  // a label in that file
};

/// Answers GET /metrics, and /healthz, on a thread of its own until it is destroyed. Move-only. The engine must outlive
/// it, and may not be moved meanwhile; one that was shut down shows its last figures. Threads: all members from any
/// thread.
class FAIRLEAD_EXPORT Metrics {
 public:
  /// Errors: kInvalidArgument, kNotFound (an address), kAlreadyExists (the ports are in use), those of the system.
  static Result<Metrics> serve(Engine& engine, const MetricsConfig& config);
  Metrics(Metrics&&) noexcept;
  Metrics& operator=(Metrics&&) noexcept;
  ~Metrics();

  /// "host:port" with the real port.
  [[nodiscard]] std::string address() const;

 private:
  struct Impl;
  explicit Metrics(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

/// The same as text, for a program that answers requests itself. Asks the system where memory is: once in seconds.
[[nodiscard]] FAIRLEAD_EXPORT std::string metrics_text(Engine& engine);

}  // namespace fairlead::inline v0
