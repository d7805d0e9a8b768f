// A mutex whose unlocking is one atomic exchange, and therefore a full fence: who unlocks and then looks whether work
// was left for him needs no fence of his own.
//
// The pattern: one leaves work, then tries the lock; the other unlocks, then looks for work. Either the lock is free,
// or the work is seen, as all accesses are sequentially consistent. Not fair, not recursive. Meets the standard's
// Lockable requirements.
#pragma once

#include <atomic>

namespace fairlead::soft {

class FencedMutex {
 public:
  void lock() noexcept {
    if (try_lock()) return;
    while (state_.exchange(kAwaited) != kFree) state_.wait(kAwaited);
  }
  [[nodiscard]] bool try_lock() noexcept {
    int free = kFree;
    return state_.load() == kFree && state_.compare_exchange_strong(free, kTaken);
  }
  void unlock() noexcept {
    if (state_.exchange(kFree) == kAwaited) state_.notify_one();
  }

 private:
  // Who has waited leaves it kAwaited: others may wait still.
  enum State : int { kFree, kTaken, kAwaited };
  std::atomic<int> state_{kFree};
};

}  // namespace fairlead::soft
