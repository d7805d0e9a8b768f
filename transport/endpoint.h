// The part of a device that is driven: it opens paths and is polled. One per lane and device.
//
// Threads: one thread at a time drives an endpoint and its paths (whoever polls drives).
// Errors: data path calls are noexcept, do not allocate per call in steady state, and answer with a Code.
#pragma once

#include <memory>

#include "fairlead/status.h"
#include "transport/path.h"
#include "transport/traffic.h"

namespace fairlead::datapath {

class Endpoint {
 public:
  /// Its paths are gone by then.
  virtual ~Endpoint() = default;

  virtual Result<std::unique_ptr<Path>> open_path(const PathConfig& config) = 0;

  /// Advances every path once, which report to their users. Returns whether anything happened: a part of an operation
  /// counts, so that nobody sleeps in the middle of a large one.
  virtual bool poll() noexcept = 0;
  /// Before sleeping: arms wait_fd(). False: poll again first, something is there already.
  virtual bool arm() noexcept = 0;
  /// Nobody sleeps: until arm() wait_fd() need not become readable, where that costs something.
  virtual void disarm() noexcept {}
  /// After poll(), where the next one may be a while off: what was put off until then, for a peer, is done now.
  virtual void settle() noexcept {}
  /// Readable after arm() when poll() may have something. Owned by the endpoint; the user only polls it for POLLIN.
  [[nodiscard]] virtual int wait_fd() const noexcept = 0;
  /// poll() must be called again within this many microseconds even if wait_fd() stays silent; -1: no timer runs.
  [[nodiscard]] virtual int wait_timeout_us() const noexcept = 0;

  /// One of its paths died under its session. By who drives it.
  void path_died() noexcept { traffic_.paths_lost.add(); }

  /// Any thread.
  [[nodiscard]] const Traffic& traffic() const noexcept { return traffic_; }

 protected:
  Endpoint() = default;
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  Traffic traffic_;
};

}  // namespace fairlead::datapath
