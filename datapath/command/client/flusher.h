// Who sends what has waited in a buffer for long: a thread that looks now and then, while there is something to look
// for.
//
// A timer for each buffer would cost who appends a system call, and in a virtual machine up to 20 us, where a near
// deadline leaves the guest. So the thread sleeps between looks on its own: for `after` while there was something due
// lately, and for twice as long after each look that was for nothing, up to 640 us. Buffers that leave by themselves,
// full or waited for, soon cost few looks; the first one after a while that does not is late by as much.
//
// Threads: arm() from any; `look` is called on the thread. fork(): the child's copy does nothing.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <thread>

namespace fairlead::datapath::command {

class Flusher {
 public:
  using Clock = std::chrono::steady_clock;
  struct Looked {
    bool was_due = false;                    // something was, and was sent
    std::optional<Clock::duration> soonest;  // after how long the next is; nothing: all buffers are empty
  };
  using Look = std::function<Looked()>;

  Flusher() = default;
  ~Flusher() { stop(); }

  /// False: there was no thread to be had.
  [[nodiscard]] bool start(std::chrono::microseconds after, Look look);
  /// No look is under way after this. Not on the flusher's thread.
  void stop() noexcept;
  /// Whether this process got it by fork().
  [[nodiscard]] bool inherited() const noexcept { return ::getpid() != owner_; }
  /// Something is in a buffer. A load while the thread looks anyway, else it is woken.
  void arm() noexcept {
    if (state_.load(std::memory_order_seq_cst) == kAsleep) wake();
  }

 private:
  enum State : std::uint32_t { kAsleep, kLooking, kStopping };
  void wake() noexcept;
  void thread_main() noexcept;
  /// Until there was nothing for a while, or it is to stop.
  void look_on() noexcept;
  void sleep(Clock::duration pause) const noexcept;

  Clock::duration after_{};
  Look look_;
  const pid_t owner_ = ::getpid();
  std::atomic<std::uint32_t> state_{kAsleep};
  std::thread thread_;
};

}  // namespace fairlead::datapath::command
