// Time as an argument: nanoseconds on a monotonic clock whose origin means nothing.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <optional>

namespace fairlead {

using Nanos = std::uint64_t;

inline constexpr Nanos kMicrosecond = 1'000;
inline constexpr Nanos kMillisecond = 1'000'000;
inline constexpr Nanos kSecond = 1'000'000'000;

class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual Nanos now() const noexcept = 0;
};

class SteadyClock final : public Clock {
 public:
  [[nodiscard]] Nanos now() const noexcept override {
    timespec time;
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<Nanos>(time.tv_sec) * kSecond + static_cast<Nanos>(time.tv_nsec);
  }
};

/// The microseconds until that time, rounded up and at most a minute; -1: there is none.
[[nodiscard]] inline int microseconds_until(std::optional<Nanos> time, Nanos now) noexcept {
  if (!time) return -1;
  const Nanos left = *time > now ? *time - now : 0;
  return static_cast<int>(std::min(left / kMicrosecond + 1, 60 * kSecond / kMicrosecond));
}

/// The one that a process needs.
[[nodiscard]] inline const Clock& steady_clock() noexcept {
  static const Clock& clock = *new SteadyClock;  // never destroyed: transports may outlive static destruction
  return clock;
}

/// now + by, which may be for ever: what would be past the end of time is there.
template <typename Duration>
[[nodiscard]] std::chrono::steady_clock::time_point later(std::chrono::steady_clock::time_point now,
                                                          Duration by) noexcept {
  using TimePoint = std::chrono::steady_clock::time_point;
  return by >= std::chrono::floor<Duration>(TimePoint::max() - now) ? TimePoint::max() : now + by;
}

/// Stands still until a test moves it.
class ManualClock final : public Clock {
 public:
  [[nodiscard]] Nanos now() const noexcept override { return now_; }
  void advance(Nanos by) noexcept { now_ += by; }

 private:
  Nanos now_ = kSecond;
};

}  // namespace fairlead
