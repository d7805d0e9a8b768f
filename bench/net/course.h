// What a loop of operations asks as it goes, and hears of itself: whether it may post more, and what of it counts.
// Threads: one.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "bench/net/options.h"
#include "bench/net/pace.h"

namespace fairlead::bench {

class Course {
 public:
  using Time = Pace::Time;

  /// Of a timed part: for so long, or so many operations if that is not 0. Calls Plan::tell.
  static Course timed(const Plan& plan, double seconds, std::uint64_t operations) {
    return {plan, operations != 0 ? Time::max() : after(seconds), operations, true};
  }
  /// Of what runs before it, until one of the two is reached; nothing of it counts, and few are in flight at first:
  /// where each takes long they would be waited for.
  static Course warm_up(const Plan& plan, double seconds, std::uint64_t operations) {
    return {plan, after(seconds), std::max<std::uint64_t>(operations, 1), false};
  }

  /// Whether no more is to be posted.
  [[nodiscard]] bool is_over(std::uint64_t posted, Time now) const noexcept {
    return plan_.stopped() || (operations_ != 0 && posted >= operations_) || now >= end_;
  }
  /// When it is over at the latest.
  [[nodiscard]] Time end() const noexcept { return end_; }
  /// How many may be in flight where `most` are wanted.
  [[nodiscard]] std::uint64_t in_flight(std::uint64_t finished, std::uint64_t most) const noexcept {
    return timed_ ? most : std::min(finished + 1, most);
  }

  /// Whether what ends now counts.
  [[nodiscard]] bool counts() const noexcept { return timed_ && !closed_; }
  /// So many have ended. The first that does when it is over is the last that counts, and ends the clock: what else is
  /// on its way then may take any time.
  void ended(std::uint64_t finished, Time now) {
    so_far(finished, now);
    if (finished != 0 && is_over(finished, now)) close();
  }
  /// The same of a loop whose end is not that of its time: it closes itself.
  void so_far(std::uint64_t finished, Time now) {
    finished_ = finished;
    if (counts()) telling_.look(finished, now);
  }
  /// What has ended counts, until now.
  void close() {
    if (!counts()) return;
    closed_ = true;
    counted_ = finished_;
    last_ = std::chrono::steady_clock::now();
    telling_.rest(counted_, last_);
  }
  [[nodiscard]] bool closed() const noexcept { return closed_; }

  [[nodiscard]] std::uint64_t counted() const noexcept { return counted_; }
  /// That ended later.
  [[nodiscard]] std::uint64_t late() const noexcept { return finished_ - counted_; }
  [[nodiscard]] Time begin() const noexcept { return begin_; }
  /// When the last that counts ended.
  [[nodiscard]] Time last() const noexcept { return last_; }

 private:
  Course(const Plan& plan, Time end, std::uint64_t operations, bool timed)
      : plan_(plan), end_(end), operations_(operations), timed_(timed), telling_(plan) {}
  static Time after(double seconds) {
    return std::chrono::steady_clock::now() + std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
  }

  const Plan& plan_;
  const Time end_;
  const std::uint64_t operations_;  // 0: any
  const bool timed_;
  bool closed_ = false;
  std::uint64_t finished_ = 0, counted_ = 0;
  const Time begin_ = std::chrono::steady_clock::now();
  Time last_ = begin_;
  Telling telling_;
};

}  // namespace fairlead::bench
