// The time for who asks again and again within microseconds: it is read from the system now and then, and is that old.
//
// Where the CPU counts at one rate (x86's TSC; it stands in for nothing else here) its count says whether the last
// reading will do. Threads: one at a time; each may be another, on another core.
#pragma once

#include <chrono>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace fairlead::datapath {

class TurnClock {
 public:
  using Clock = std::chrono::steady_clock;

  /// At most kOld cycles old, which is a few microseconds at most.
  [[nodiscard]] Clock::time_point now() noexcept {
#if defined(__x86_64__)
    const std::uint64_t count = __rdtsc();
    if (count - read_at_ < kOld) return last_;  // also after a move to a core whose count is behind: then it is read
    read_at_ = count;
    last_ = Clock::now();
    return last_;
#else
    return Clock::now();
#endif
  }

 private:
  static constexpr std::uint64_t kOld = 4096;
  std::uint64_t read_at_ = 0;
  Clock::time_point last_{};
};

}  // namespace fairlead::datapath
