// The time for who asks again and again within microseconds: it is read from a clock now and then, and is that old.
//
// Where the CPU counts at one rate (x86's TSC; it stands in for nothing else here) its count says whether the last
// reading will do. Threads: one at a time; each may be another, on another core.
#pragma once

#include <cstdint>
#include <utility>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace fairlead {

template <typename Time>
class RecentTime {
 public:
  /// What `read` answers, or answered at most kOld cycles ago, which is a few microseconds at most.
  template <typename Read>
  [[nodiscard]] Time now(Read&& read) noexcept {
#if defined(__x86_64__)
    const std::uint64_t count = __rdtsc();
    if (count - read_at_ < kOld) return last_;  // also after a move to a core whose count is behind: then it is read
    read_at_ = count;
    return last_ = std::forward<Read>(read)();
#else
    return std::forward<Read>(read)();
#endif
  }

 private:
  static constexpr std::uint64_t kOld = 4096;
  std::uint64_t read_at_ = 0;
  Time last_{};
};

}  // namespace fairlead
