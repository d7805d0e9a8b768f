// So many bytes a second: a bucket that fills evenly and may be drawn into debt, so a piece larger than it waits no
// longer than others of its size do.
//
// Threads: any.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <utility>

namespace fairlead::datapath::command {

class RateLimit {
 public:
  using Clock = std::chrono::steady_clock;

  /// 0: no limit. One that there was before is followed by this: what was drawn of it is owed.
  void set(std::uint64_t bytes_per_second, Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    fill(now);
    const double before = std::exchange(rate_, static_cast<double>(bytes_per_second));
    const double most = rate_ * kGathered;
    level_ = before > 0 ? std::min(level_, most) : most;
    limited_.store(bytes_per_second != 0, std::memory_order_relaxed);
  }
  [[nodiscard]] bool is_limited() const noexcept { return limited_.load(std::memory_order_relaxed); }
  /// Above 0: more may go. There is a limit.
  [[nodiscard]] double level(Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    fill(now);
    return level_;
  }
  void charge(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    level_ -= static_cast<double>(bytes);
  }
  /// There is a limit. Whether so many may go now; then they have.
  [[nodiscard]] bool take(std::uint64_t bytes, Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    fill(now);
    if (level_ <= 0) return false;
    level_ -= static_cast<double>(bytes);
    return true;
  }

 private:
  void fill(Clock::time_point now) {
    if (now <= counted_) return;
    level_ = std::min(rate_ * kGathered, level_ + rate_ * std::chrono::duration<double>(now - counted_).count());
    counted_ = now;
  }

  static constexpr double kGathered = 0.05;  // seconds: what an idle tenant may send at once

  std::atomic<bool> limited_{false};
  std::mutex mutex_;  // guards what follows
  double rate_ = 0, level_ = 0;
  Clock::time_point counted_{};
};

}  // namespace fairlead::datapath::command
