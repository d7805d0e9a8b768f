// Whether this end answers what comes before it looks again, as far as one can tell from what it did so far.
//
// Its next request then says what has ended, and the line in which that is said else stays where it is: a line that one
// end writes and the other looks at costs both some hundred nanoseconds each time. Whoever does not answer makes the
// peer wait one more poll for an end, so each guess that was wrong is followed by a longer time without one.
// Threads: the driving thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace fairlead::shm {

class AnswerHabit {
 public:
  static constexpr std::uint32_t kLeast = 4, kMost = 256;

  [[nodiscard]] bool expects_answer() const noexcept { return in_a_row_ >= wanted_; }
  /// Of all that came in one poll, in the next one.
  void learn(bool answered) noexcept {
    if (answered) {
      if (++in_a_row_ >= 16 * kMost) wanted_ = kLeast;
      in_a_row_ = std::min(in_a_row_, 16 * kMost);
      return;
    }
    if (expects_answer()) wanted_ = std::min(2 * wanted_, kMost);
    in_a_row_ = 0;
  }

 private:
  std::uint32_t in_a_row_ = 0, wanted_ = kLeast;
};

}  // namespace fairlead::shm
