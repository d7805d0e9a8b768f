// Engines across fork(): the child's copies are inert.
//
// A child has the parent's descriptors and memory but none of its threads, and whatever those were in the middle of
// stays so. So an engine that was inherited does nothing: calls say why, locks are not taken, and nothing of it is ever
// destroyed, since it may be half changed. Its descriptors are PrivateFds, closed in the child without epoll_ctl (the
// epoll instances are the parent's as well), so that the parent's end is seen by its peers and frees its addresses.
// The child may make an engine of its own.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>

#include "fairlead/status.h"

namespace fairlead::datapath {

class EngineImpl;

/// A part of each engine. Threads: any.
class LiveEngine {
 public:
  explicit LiveEngine(EngineImpl& engine);
  ~LiveEngine();
  LiveEngine(const LiveEngine&) = delete;
  LiveEngine& operator=(const LiveEngine&) = delete;

  /// Whether this process got the engine by fork().
  [[nodiscard]] bool inherited() const noexcept { return inherited_.load(std::memory_order_relaxed); }
  /// ok, or why calls come to nothing.
  [[nodiscard]] Status usable() const;

 private:
  friend class LiveEngines;
  EngineImpl& engine_;
  const pid_t maker_;
  std::atomic<bool> inherited_{false};
  std::shared_ptr<EngineImpl> kept_;  // in a child
};

}  // namespace fairlead::datapath
