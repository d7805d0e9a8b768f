// Threads that sleep while another drives their lane, each until its own condition holds.
//
// The driver looks at their conditions after whatever it did, and wakes those whose condition holds and no others; who
// stops driving calls one of them to take its place. Conditions are evaluated under the lock by the driver, so they
// only read what is atomic. Threads: any.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

namespace fairlead::datapath {

class Waiters {
 public:
  using Clock = std::chrono::steady_clock;
  using Condition = std::function<bool()>;

  [[nodiscard]] bool any() const noexcept { return count_.load() != 0; }

  /// Sleeps until it is woken or called, or the deadline. Not at all if `done` or `stay_awake` says so once any() has
  /// become true: what happens from then on, others tell. A null `done` is for who only waits to be called.
  void sleep(const Condition* done, const Condition& stay_awake, Clock::time_point deadline);
  /// Wakes those whose condition holds.
  void wake_done() noexcept;
  /// Wakes the one that has slept longest, of those with a condition if there are any. Nobody, while one that was
  /// called has not got up.
  void call_one() noexcept;
  void wake_all() noexcept;

  /// How often a thread was woken.
  [[nodiscard]] std::uint64_t wakes() const noexcept { return wakes_.load(std::memory_order_relaxed); }

 private:
  struct Waiter {
    const Condition* done;
    bool awake = false;
    bool called = false;
    std::condition_variable up{};
  };
  void wake(Waiter& waiter) noexcept;

  std::mutex mutex_;  // guards what follows
  std::vector<Waiter*> waiting_;
  bool calling_ = false;  // one was called and has not got up
  std::atomic<std::size_t> count_{0};
  std::atomic<std::uint64_t> wakes_{0};
};

}  // namespace fairlead::datapath
