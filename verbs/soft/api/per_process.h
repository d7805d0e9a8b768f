// State that each process has for itself, in an object that a forked child inherits: the child begins with a state of
// its own. The parent's may be half changed, and its lock held for ever, by a thread that the child does not have; so
// it is neither looked at nor freed there.
//
// Never destroyed, so it is for objects that live as long as the process. Threads: any.
#pragma once

#include <atomic>
#include <memory>

#include "base/system/fork_mark.h"

namespace fairlead::soft {

template <typename State>
class PerProcess {
 public:
  PerProcess() : own_(new Own(nullptr)) {}
  PerProcess(const PerProcess&) = delete;
  PerProcess& operator=(const PerProcess&) = delete;

  [[nodiscard]] State& get() {
    Own* own = own_.load(std::memory_order_acquire);
    while (!own->mark.is_mine()) {
      auto made = std::make_unique<Own>(own);
      if (own_.compare_exchange_strong(own, made.get(), std::memory_order_acq_rel)) own = made.release();
    }
    return own->state;
  }

 private:
  struct Own {
    explicit Own(const Own* parent) noexcept : parents(parent) {}
    const ForkMark mark;
    const Own* const parents;  // kept reachable
    State state;
  };

  std::atomic<Own*> own_;
};

}  // namespace fairlead::soft
