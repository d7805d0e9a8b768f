// How long a thread sleeps that is only to see to it that others do not stop: until nobody has put its end off for so
// long. To put it off costs them half a microsecond now and then, where looking again and again would cost each time
// what a thread takes from who runs on its core, some 20 us.
//
// Threads: one sleeps, any put off. A child of fork() must not use it, which leaves the parent's alone.
#pragma once

#include <atomic>
#include <chrono>

#include "base/private_fd.h"

namespace fairlead {

class Patience {
 public:
  explicit Patience(std::chrono::nanoseconds length);
  /// False: there was no descriptor left, and it never ends.
  explicit operator bool() const noexcept { return static_cast<bool>(timer_); }

  /// By who is about to sleep on fd(), and when he does so no more.
  void begin() noexcept;
  void end() noexcept { slept_on_.store(false, std::memory_order_relaxed); }
  /// Readable when it is over.
  [[nodiscard]] int fd() const noexcept { return timer_.get(); }

  /// Whether somebody sleeps on it: else there is nothing to put off.
  [[nodiscard]] bool slept_on() const noexcept { return slept_on_.load(std::memory_order_relaxed); }
  /// It lasts its whole length from now on.
  void put_off() noexcept;

 private:
  const std::chrono::nanoseconds length_;
  PrivateFd timer_;
  std::atomic<bool> slept_on_{false};
};

}  // namespace fairlead
