// Whether an acknowledgement may wait for the answer of the user, which would take it along.
//
// It may where answers come at once. Each time that it waited in vain, which delays it by a turn, twice as many answers
// are asked for before the next try; as many acknowledgements in a row that went along make good for one such time.
// Counts answers, not time. Threads: the driving thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace fairlead::tcp_fallback {

class AckHold {
 public:
  static constexpr std::uint32_t kMost = 64;  // answers: whoever begins to answer is believed some time

  [[nodiscard]] bool may_wait() const noexcept { return answers_ >= needed_; }
  /// What came was answered at once.
  void answered() noexcept { answers_ = std::min(answers_ + 1, kMost); }
  /// An answer took along what waited for it.
  void went_along() noexcept {
    if (++along_ < needed_) return;
    needed_ = std::max(needed_ / 2, 1U);
    along_ = 0;
  }
  /// None came.
  void waited_in_vain() noexcept {
    needed_ = std::min(2 * needed_, kMost);
    answers_ = along_ = 0;
  }

 private:
  std::uint32_t needed_ = 1;
  std::uint32_t answers_ = 0;  // since it waited in vain
  std::uint32_t along_ = 0;    // that went along, since then or since `needed_` fell
};

}  // namespace fairlead::tcp_fallback
