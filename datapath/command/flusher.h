// The timer that sends what has waited in a buffer for long: a thread that sleeps on a descriptor.
//
// Arming costs nothing while it is armed, else a system call. Threads: arm() from any; `look` is called on the timer's.
// fork(): the child's copy does nothing.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <thread>

#include "base/unique_fd.h"

namespace fairlead::datapath::command {

class Flusher {
 public:
  using Clock = std::chrono::steady_clock;
  /// Sends what is due, and says after how long to look again; nothing: when it is armed next.
  using Look = std::function<std::optional<Clock::duration>()>;

  Flusher() = default;
  ~Flusher() { stop(); }

  /// False: there was no descriptor to be had.
  [[nodiscard]] bool start(std::chrono::microseconds after, Look look);
  /// No look is under way after this. Not on the timer's thread.
  void stop() noexcept;
  /// Whether this process got it by fork().
  [[nodiscard]] bool inherited() const noexcept { return ::getpid() != owner_; }
  /// Something is in a buffer.
  void arm() noexcept {
    if (timer_.valid() && !armed_.load(std::memory_order_seq_cst) && !armed_.exchange(true)) set(after_);
  }
  /// All buffers were sent; `any` says whether something has come into one meanwhile. It spares the thread a wake for
  /// nothing.
  template <typename Any>
  void disarm(Any any) noexcept {
    if (!armed_.load()) return;
    armed_.store(false);
    set(Clock::duration::zero());
    if (!any()) return;
    // Whoever put it there may have armed before the timer was stopped.
    armed_.store(true);
    set(after_);
  }

 private:
  /// Zero: never.
  void set(Clock::duration after) const noexcept;
  void thread_main() noexcept;

  UniqueFd timer_;
  Clock::duration after_{};
  Look look_;
  const pid_t owner_ = ::getpid();
  std::atomic<bool> armed_{false};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace fairlead::datapath::command
