// A lock for sections of a few dozen instructions: one atomic operation to take it, none to give it back.
//
// Whoever waits spins for a little, then yields its core to a holder that was preempted. Not fair, not recursive.
// Meets the standard's Lockable requirements, so std::lock_guard takes it.
#pragma once

#include <sched.h>

#include <atomic>

namespace fairlead {

class SpinLock {
 public:
  void lock() noexcept {
    while (locked_.exchange(true, std::memory_order_acquire)) wait();
  }
  [[nodiscard]] bool try_lock() noexcept {
    return !locked_.load(std::memory_order_relaxed) && !locked_.exchange(true, std::memory_order_acquire);
  }
  void unlock() noexcept { locked_.store(false, std::memory_order_release); }

 private:
  void wait() const noexcept {
    for (unsigned look = 0; locked_.load(std::memory_order_relaxed); ++look) {
      if (look >= 64) {
        ::sched_yield();
      } else {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
      }
    }
  }
  std::atomic<bool> locked_{false};
};

}  // namespace fairlead
