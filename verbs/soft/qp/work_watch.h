// Whether a queue pair will look at its send queue without being told: it found no room in its peer's window, stands in
// line for some, and then looks at all there is. Until then new work needs no doorbell.
//
// Threads: wait() and look() under the domain's lock, will_look() by whoever has published work.
#pragma once

#include <atomic>

namespace fairlead::soft {

class WorkWatch {
 public:
  /// There is no room.
  void wait() noexcept { waits_.store(true, std::memory_order_relaxed); }
  /// It looks at its work from here on, or has left the line: what was posted until now must be seen.
  void look() noexcept {
    if (!waits_.load(std::memory_order_relaxed)) return;
    waits_.store(false, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // before the queue is looked at; pairs with will_look()'s
  }
  /// What was published before will be seen.
  [[nodiscard]] bool will_look() const noexcept {
    if (!waits_.load(std::memory_order_relaxed)) return false;
    std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with look()'s
    return waits_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<bool> waits_{false};
};

}  // namespace fairlead::soft
