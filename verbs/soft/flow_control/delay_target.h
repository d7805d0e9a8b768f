// How long packets wait on their way to a peer: what round trips take beyond the shortest one.
//
// A queue shows so before it overflows, and a loss without one was no overflow (TCP Vegas, Brakmo and Peterson, IEEE
// JSAC 1995; Swift, Kumar et al., SIGCOMM 2020). A round trip also has what either end did before it looked, so that
// several in a row must be long. Plain arithmetic. Threads: none of its own.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"

namespace fairlead::soft {

class DelayTarget {
 public:
  enum class Verdict : std::uint8_t { kUnknown, kRoom, kFull };

  /// One round trip took so long: none, by a clock that is read once a turn, if it began and ended within one. An
  /// answer with every kSamples of them.
  [[nodiscard]] Verdict on_round_trip(Nanos took) noexcept {
    took = std::max<Nanos>(took, 1);
    shortest_ = shortest_ == 0 ? took : std::min(shortest_, took);
    lowest_ = samples_ == 0 ? took : std::min(lowest_, took);
    calm_ = took - shortest_ <= kTarget;
    if (++samples_ < kSamples) return Verdict::kUnknown;
    samples_ = 0;
    return lowest_ - shortest_ <= kTarget ? Verdict::kRoom : Verdict::kFull;
  }
  /// The last one was within the target, or there was none.
  [[nodiscard]] bool calm() const noexcept { return calm_; }
  /// Of the last answer: which part of the bytes on their way waits beyond the target.
  [[nodiscard]] double excess() const noexcept {
    return static_cast<double>(lowest_ - std::min(lowest_, shortest_ + kTarget)) / static_cast<double>(lowest_);
  }
  /// The way has become longer: what was asked last is the shortest from now on.
  void forget() noexcept { shortest_ = lowest_; }

  static constexpr Nanos kTarget = 1 * kMillisecond;
  static constexpr unsigned kSamples = 4;

 private:
  Nanos shortest_ = 0;  // ever; 0: none was timed
  Nanos lowest_ = 0;    // of the samples since the last answer
  unsigned samples_ = 0;
  bool calm_ = true;
};

}  // namespace fairlead::soft
