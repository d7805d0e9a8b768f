// How much of what is spread over several paths one of them may have under way.
//
// Each path takes more when what it had is done, so that each carries what it can. It has so much at a time that it is
// never idle, and no more: what waits on a slow path when the others are done is waited for. That is what it carries in
// kAhead, or in two of its round trips if they are longer. What that is nobody knows at first: then it has a few
// stripes, in proportion to what the placement plan gives it. Pure. Threads: the driver.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "datapath/lane/lane.h"

namespace fairlead::datapath {

class Share {
 public:
  static constexpr std::chrono::milliseconds kAhead{4};
  static constexpr std::chrono::milliseconds kSample{2};     // of its rate
  static constexpr std::uint64_t kFewest = 4, kMost = 4096;  // stripes
  static constexpr double kWeight = 2, kMostWeight = 8;      // of who is not planned, or as good as the others; at most

  explicit Share(std::uint64_t stripe) noexcept
      : stripe_(stripe), window_(static_cast<std::uint64_t>(kWeight) * kFewest * stripe) {}

  /// So many bytes more may be given to it.
  [[nodiscard]] std::uint64_t room() const noexcept { return window_ - std::min(window_, under_way_); }

  void given(std::uint64_t bytes, Clock::time_point now) noexcept {
    if (bytes == 0) return;
    // Whoever has little ends it all between two looks, and is to be measured all the same.
    if (under_way_ == 0 && now - idle_since_ >= kSample) begin_sample(now);
    if (!timed_) {
      timed_ = true;
      ahead_of_timed_ = under_way_ + bytes;
      timed_since_ = now;
    }
    under_way_ += bytes;
    full_ |= room() < stripe_;
  }
  void ended(std::uint64_t bytes, Clock::time_point now) noexcept {
    under_way_ -= std::min(under_way_, bytes);
    if (under_way_ == 0) idle_since_ = now;
    carried_ += bytes;
    if (timed_ && ahead_of_timed_ <= bytes) {
      timed_ = false;
      round_trip_ = std::min(round_trip_, now - timed_since_);
    } else {
      ahead_of_timed_ -= std::min(ahead_of_timed_, bytes);
    }
    // It had all that it may have, and was done with it before anybody could give it more: that says nothing of its
    // rate.
    if (under_way_ == 0 && std::exchange(full_, false)) {
      window_ = std::min(2 * window_, kMost * stripe_);
      begin_sample(now);
    } else if (now - since_ >= kSample) {
      measure(now);
    }
  }
  /// The path is another. `weight`: how much it should carry, when the path that should carry least has 1.
  void reset(double weight = kWeight) noexcept {
    *this = Share(stripe_);
    window_ = static_cast<std::uint64_t>(std::clamp(weight, 1.0, kMostWeight) * static_cast<double>(kFewest * stripe_));
  }
  /// It was measured to carry so much, bytes per second: where it begins.
  void expect(double rate) noexcept {
    const auto wanted = static_cast<std::uint64_t>(rate * std::chrono::duration<double>(kAhead).count());
    window_ = std::clamp(wanted, kFewest * stripe_, kMost * stripe_);
  }

 private:
  void begin_sample(Clock::time_point now) noexcept {
    since_ = now;
    carried_ = 0;
  }
  void measure(Clock::time_point now) noexcept {
    const double ahead = std::chrono::duration<double>(std::max<Clock::duration>(kAhead, 2 * round_trip_)).count();
    const double rate = static_cast<double>(carried_) / std::chrono::duration<double>(now - since_).count();
    const auto wanted = static_cast<std::uint64_t>(rate * ahead);
    window_ = std::clamp((window_ + wanted) / 2, kFewest * stripe_, kMost * stripe_);
    begin_sample(now);
  }

  std::uint64_t stripe_;
  std::uint64_t window_;
  std::uint64_t under_way_ = 0;
  bool full_ = false;  // since it last had nothing
  // Its rate.
  std::uint64_t carried_ = 0;
  Clock::time_point since_{}, idle_since_{};
  // One piece at a time, from when it is given until all before it and it itself have ended; the shortest counts.
  bool timed_ = false;
  std::uint64_t ahead_of_timed_ = 0;
  Clock::time_point timed_since_{};
  Clock::duration round_trip_ = std::chrono::seconds(1);
};

}  // namespace fairlead::datapath
