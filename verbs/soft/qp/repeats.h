// Ranges of packets that a requester is to send once more, in the order in which they were reported missing.
//
// Bounded: what finds no room is reported again, or found by a timeout. Threads: under the domain's lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "verbs/soft/wire/psn.h"

namespace fairlead::soft {

struct PsnRange {
  Psn first;
  Psn end;
  bool answers = false;  // what is missing are answers: only READs and atomics are asked again
};

class Repeats {
 public:
  static constexpr std::size_t kMost = 16;

  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  /// There is one.
  [[nodiscard]] PsnRange& front() noexcept { return ranges_[head_]; }
  void pop() noexcept {
    head_ = (head_ + 1) % kMost;
    --count_;
  }
  /// False: there are too many.
  bool push(const PsnRange& range) noexcept {
    if (count_ == kMost) return false;
    ranges_[(head_ + count_++) % kMost] = range;
    return true;
  }
  void clear() noexcept { count_ = 0; }

 private:
  std::array<PsnRange, kMost> ranges_{};
  std::size_t head_ = 0;
  std::size_t count_ = 0;
};

}  // namespace fairlead::soft
