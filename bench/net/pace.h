// When the next operation is due, and when to say how far a timed part is.
// Threads: one.
#pragma once

#include <chrono>
#include <cstdint>

#include "bench/net/options.h"

namespace fairlead::bench {

/// Operations at a fixed rate: each is due at its own time, counted from the beginning. One that comes late, because
/// those before it took long, is not moved: whoever measures from when it was due sees what a user would have waited
/// (coordinated omission hides that). Without a rate every operation is due at once.
class Pace {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// `phase`: by so much of the time from one to the next all are later.
  Pace(double per_second, Time begin, double phase = 0) : per_second_(per_second), begin_(begin), phase_(phase) {}
  [[nodiscard]] bool paced() const noexcept { return per_second_ > 0; }
  /// When operation `number`, counted from 0, is due.
  [[nodiscard]] Time due(std::uint64_t number) const noexcept {
    if (!paced()) return begin_;
    return begin_ + std::chrono::nanoseconds(
                        static_cast<std::int64_t>((static_cast<double>(number) + phase_) * 1e9 / per_second_));
  }

 private:
  double per_second_;
  Time begin_;
  double phase_;
};

/// Calls Plan::tell each Plan::interval; costs a comparison where it is not time.
class Telling {
 public:
  explicit Telling(const Plan& plan) : plan_(plan) {
    if (plan.interval > 0 && plan.tell) next_ = begin_ + step();
  }
  /// So many have ended.
  void look(std::uint64_t operations, Pace::Time now) {
    if (now < next_) return;
    tell(operations, now);
    while (next_ <= now) next_ += step();
  }
  /// At the end, what has ended since it was last told.
  void rest(std::uint64_t operations, Pace::Time now) {
    if (next_ != Pace::Time::max() && operations > told_) tell(operations, now);
  }

 private:
  void tell(std::uint64_t operations, Pace::Time now) {
    const auto since = [this](Pace::Time time) { return std::chrono::duration<double>(time - begin_).count(); };
    plan_.tell({.from = since(last_), .to = since(now), .operations = operations - told_});
    last_ = now;
    told_ = operations;
  }
  [[nodiscard]] std::chrono::nanoseconds step() const {
    return std::chrono::nanoseconds(static_cast<std::int64_t>(plan_.interval * 1e9));
  }

  const Plan& plan_;
  const Pace::Time begin_ = std::chrono::steady_clock::now();
  Pace::Time last_ = begin_, next_ = Pace::Time::max();
  std::uint64_t told_ = 0;
};

}  // namespace fairlead::bench
