// A target in a process of its own on this host, for `bench --local`.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "bench/memory/place.h"
#include "fairlead/config.h"
#include "fairlead/engine.h"
#include "fairlead/status.h"

namespace fairlead::bench {

/// The child ends when its initiator has gone, when this object is destroyed, or when this process dies, however it
/// dies. Fork happens in start(), so call it before any thread exists.
class LocalTarget {
 public:
  /// What the child does with its engine, until its initiator has gone; false: in vain.
  using Serve = std::function<bool(Engine)>;
  /// `config.listen` is replaced by a free port of loopback. Errors: the child's own.
  static Result<LocalTarget> start(EngineConfig config, const Serve& serve);
  LocalTarget(LocalTarget&& other) noexcept;
  LocalTarget& operator=(LocalTarget&&) = delete;
  ~LocalTarget();

  [[nodiscard]] const std::string& address() const noexcept { return address_; }

  /// As the target of bandwidth and latency measurements, which gives memory there.
  [[nodiscard]] static Serve measurements(Place memory = {});

 private:
  LocalTarget(pid_t child, std::string address) : child_(child), address_(std::move(address)) {}
  pid_t child_;  // -1: none
  std::string address_;
};

}  // namespace fairlead::bench
