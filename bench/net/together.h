// Where loads of several threads meet, so that what they do is measured as one: their clocks begin together, and none
// goes on before all have ended.
//
// A load meets three times: before it tells its target to measure, at the begin of its timed part and at its end. One
// that failed leaves; then the others need not wait for it, and stop. Threads: any; one Together for each measurement.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>

#include "bench/base/cpu_time.h"

namespace fairlead::bench {

class Together {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit Together(std::size_t loads) : loads_(loads) {}

  /// Wait until all that are left have come.
  void warm() { meet(); }
  void begin() { meet(); }
  /// `last`: when the last of this load's operations that counts had ended.
  void end(Time last) { meet(last); }
  /// Of a load that failed and comes no more.
  void leave();
  /// Whether one has left: what the others measure is worth nothing then.
  [[nodiscard]] bool failed() const noexcept { return failed_.load(std::memory_order_relaxed); }

  /// Once all meetings are over: seconds from the second until the last operation that counts had ended, and this
  /// process's processor time from the second to the third.
  [[nodiscard]] double seconds() const noexcept { return seconds_; }
  [[nodiscard]] const CpuUse& cpu() const noexcept { return cpu_; }

 private:
  void meet(Time last = {});
  void pass();  // with mutex_

  std::mutex mutex_;
  std::condition_variable passed_;
  std::size_t loads_;         // mutex_
  std::size_t waiting_ = 0;   // mutex_
  std::size_t meetings_ = 0;  // mutex_: that are over
  CpuStopwatch watch_;        // mutex_: since the second meeting
  Time began_, last_;         // mutex_: likewise; of all loads
  std::atomic<bool> failed_ = false;
  double seconds_ = 0;  // both written at the last meeting, before anybody goes on
  CpuUse cpu_;
};

}  // namespace fairlead::bench
