// The core on which somebody spins. Who is waited for may have been woken there: a virtual machine's halted CPU does
// not look idle to its kernel (vcpu_is_preempted), so both ends of a session may share one, and one that spins makes
// the other wait. Threads: one at a time.
#pragma once

#include <chrono>
#include <thread>

namespace fairlead::datapath {

class CoreSharing {
 public:
  using Clock = std::chrono::steady_clock;

  /// `yield` lets others run and returns when it is our turn again, with the time.
  explicit CoreSharing(Clock::time_point (*yield)() noexcept = &yield_now) noexcept : yield_(yield) {}

  /// Nothing has come since `idle_since`. Lets others have the core, but for a while after one kept it for long: a
  /// program that has nothing to do with us takes all of its slice.
  void offer(Clock::time_point now, Clock::time_point idle_since) noexcept {
    if (now - idle_since < kOwnTime || now < kept_until_) return;
    const Clock::time_point back = yield_();
    if (back - now > kPeersTime) kept_until_ = back + kKeepTimes * (back - now);
  }

  static constexpr std::chrono::microseconds kOwnTime{10};     // more than a round trip over loopback
  static constexpr std::chrono::microseconds kPeersTime{600};  // at the most; slices are milliseconds
  static constexpr int kKeepTimes = 32;

 private:
  static Clock::time_point yield_now() noexcept {
    std::this_thread::yield();
    return Clock::now();
  }

  Clock::time_point (*const yield_)() noexcept;
  Clock::time_point kept_until_{};
};

}  // namespace fairlead::datapath
