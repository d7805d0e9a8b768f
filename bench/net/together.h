// Where loads of several threads meet, so that what they do is measured as one: their clocks begin together, and none
// goes on before all have ended.
//
// A load meets three times: before it tells its target to measure, at the begin of its timed part and at its end. One
// that failed leaves; then the others need not wait for it, and stop. Threads: any; one Together for each measurement.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <mutex>

#include "bench/base/cpu_time.h"

namespace fairlead::bench {

class Together {
 public:
  explicit Together(std::size_t loads) : loads_(loads) {}

  /// Wait until all that are left have come.
  void warm() { meet(); }
  void begin() { meet(); }
  void end() { meet(); }
  /// Of a load that failed and comes no more.
  void leave();
  /// Whether one has left: what the others measure is worth nothing then.
  [[nodiscard]] bool failed() const noexcept { return failed_.load(std::memory_order_relaxed); }

  /// Between the last two meetings, once they are over: seconds, and processor time of this process.
  [[nodiscard]] double seconds() const noexcept { return seconds_; }
  [[nodiscard]] const CpuUse& cpu() const noexcept { return cpu_; }

 private:
  void meet();
  void pass();  // with mutex_

  std::mutex mutex_;
  std::condition_variable passed_;
  std::size_t loads_;         // mutex_
  std::size_t waiting_ = 0;   // mutex_
  std::size_t meetings_ = 0;  // mutex_: that are over
  CpuStopwatch watch_;        // mutex_: since the second meeting
  std::atomic<bool> failed_ = false;
  double seconds_ = 0;  // both written at the last meeting, before anybody goes on
  CpuUse cpu_;
};

}  // namespace fairlead::bench
