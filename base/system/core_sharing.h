// The core on which somebody spins. Who is waited for may have been woken there: a virtual machine's halted CPU does
// not look idle to its kernel (vcpu_is_preempted), so both ends of a session may share one, and one that spins makes
// the other wait. Left to itself the system keeps them there for tens of milliseconds. Threads: one at a time.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/system/other_core.h"

namespace fairlead {

class CoreSharing {
 public:
  struct System {
    Nanos (*yield)() noexcept;  // lets others run; the time when it is our turn again
    int (*core)() noexcept;
    bool (*leave)() noexcept;  // goes to another core; whether it could
  };
  explicit CoreSharing(System system = own_system()) noexcept : system_(system) {}

  /// Nothing has come since `idle_since`. Lets others have the core, but for a while after one kept it for long and
  /// nothing had come from it: a program that has nothing to do with us takes all of its slice. If what we wait for
  /// comes from here time and again, goes elsewhere.
  void offer(Nanos now, Nanos idle_since) noexcept {
    if (now < idle_since + kOwnTime || (now < kept_until_ && system_.core() == kept_)) return;
    // Whoever polls offers again soon; that something came before means that it was there when the core was ours again.
    const bool somebody_ran = std::exchange(somebody_ran_, false);
    if (somebody_ran && idle_since >= back_ && idle_since < back_ + kOneTalk) {
      if (++came_from_here_ >= kTimesAreNoChance && now >= stay_until_) {
        go_elsewhere(now);
        return;
      }
    } else if (somebody_ran) {
      came_from_here_ = 0;
      if (took_ > kPeersTime) {
        kept_until_ = back_ + kKeepTimes * took_;
        kept_ = system_.core();
        if (now < kept_until_) return;
      }
    }
    const Nanos back = system_.yield();
    if (back < now + kSomebodyRan) return;
    if (back > back_ + kOneTalk) came_from_here_ = 0;  // what was before is another matter
    somebody_ran_ = true;
    took_ = back - now;
    back_ = back;
  }
  void offer(std::chrono::steady_clock::time_point now, std::chrono::steady_clock::time_point idle_since) noexcept {
    offer(nanos(now), nanos(idle_since));
  }

  static constexpr Nanos kOwnTime = 10 * kMicrosecond;     // more than a round trip over loopback
  static constexpr Nanos kSomebodyRan = 2 * kMicrosecond;  // a yield to nobody takes less than one
  static constexpr Nanos kOneTalk = kMillisecond;          // two ends that share a core and move 1 MiB take less for it
  static constexpr Nanos kPeersTime = 600 * kMicrosecond;  // at the most; slices are milliseconds
  static constexpr unsigned kKeepTimes = 32;
  static constexpr unsigned kTimesAreNoChance = 4;
  static constexpr Nanos kShortStay = kMillisecond, kLongStay = kSecond;  // between two goings

 private:
  static System own_system() noexcept {
    return {[]() noexcept {
              ::sched_yield();
              return SteadyClock().now();
            },
            []() noexcept { return ::sched_getcpu(); }, []() noexcept { return leave_core(); }};
  }
  static Nanos nanos(std::chrono::steady_clock::time_point time) noexcept {
    return static_cast<Nanos>(std::chrono::nanoseconds(time.time_since_epoch()).count());
  }

  /// Rarely where it is in vain: at once again means that the other core is taken, too, or that there is none.
  void go_elsewhere(Nanos now) noexcept {
    const bool soon = now < stay_until_ + kSoon * stay_;
    stay_ = !system_.leave() ? kLongStay : soon ? std::min(2 * stay_, kLongStay) : kShortStay;
    stay_until_ = now + stay_;
    came_from_here_ = 0;
  }

  static constexpr unsigned kSoon = 16;

  const System system_;
  int kept_ = -1;  // the core that is not offered
  Nanos kept_until_ = 0;
  bool somebody_ran_ = false;    // when the core was offered last
  Nanos took_ = 0;               // how long who had it
  Nanos back_ = 0;               // when it was ours again
  unsigned came_from_here_ = 0;  // in a row
  Nanos stay_until_ = 0;
  Nanos stay_ = kShortStay;
};

/// The calling thread's, whatever it waits for.
inline CoreSharing& this_threads_core() noexcept {
  static thread_local CoreSharing sharing;
  return sharing;
}

}  // namespace fairlead
