// A thread that looks for what may come from its own core gives that away between looks, and looks for a little longer
// at a time while nobody takes it. Threads: one for each object.
#pragma once

#include <sched.h>

#include "base/clock.h"
#include "base/system/core_sharing.h"

namespace fairlead {

class YieldingLook {
 public:
  using Yield = Nanos (*)() noexcept;  // lets others run; for how long they did
  explicit YieldingLook(Yield yield = own_yield) noexcept : yield_(yield) {}

  /// Whether nobody wanted the core when it was given away last.
  [[nodiscard]] bool is_alone() const noexcept { return alone_; }
  /// A look found nothing.
  void missed() noexcept { alone_ = yield_() < CoreSharing::kSomebodyRan; }

 private:
  static Nanos own_yield() noexcept {
    const SteadyClock clock;
    const Nanos before = clock.now();
    ::sched_yield();
    return clock.now() - before;
  }

  const Yield yield_;
  bool alone_ = false;
};

/// The calling thread's.
inline YieldingLook& this_threads_look() noexcept {
  static thread_local YieldingLook look;
  return look;
}

}  // namespace fairlead
