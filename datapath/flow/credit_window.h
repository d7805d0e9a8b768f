// What a sender may have under way: sequenced messages that the peer's application has not taken, counted and weighed.
//
// Gives the sequence numbers out. Notifications weigh nothing; a fragment weighs its bytes, and goes while the window
// has any room: so the peer holds up to one fragment more than it asked for, and one that is larger than the window
// passes. Pure. Threads: the driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "datapath/lane/ring.h"

namespace fairlead::datapath {

class CreditWindow {
 public:
  struct Limits {
    std::uint64_t events = 0;
    std::uint64_t bytes = std::numeric_limits<std::uint64_t>::max();
  };

  void set_limits(const Limits& limits) noexcept { limits_ = limits; }
  [[nodiscard]] bool open() const noexcept { return next_ - 1 - consumed_ < limits_.events && weight_ < limits_.bytes; }
  /// The number that is given out next. From 1 on.
  [[nodiscard]] std::uint64_t next() const noexcept { return next_; }

  /// Numbers a message of that many bytes.
  std::uint64_t take(std::uint64_t bytes) {
    if (bytes != 0) weights_.push_back({next_, bytes});
    weight_ += bytes;
    return next_++;
  }
  /// `sequence` and what follows it was not sent after all: their numbers are given out again.
  void give_back(std::uint64_t sequence) noexcept {
    next_ = sequence;
    while (!weights_.empty() && weights_.back().sequence >= sequence) {
      weight_ -= weights_.back().bytes;
      weights_.pop_back();
    }
  }
  /// The peer's application has taken what came up to this number. Anything that cannot be is no news.
  void consumed(std::uint64_t sequence) noexcept {
    if (sequence <= consumed_ || sequence >= next_) return;
    consumed_ = sequence;
    while (!weights_.empty() && weights_.front().sequence <= sequence) weight_ -= weights_.pop_front().bytes;
  }

 private:
  struct Weight {
    std::uint64_t sequence = 0;
    std::uint64_t bytes = 0;
  };

  Limits limits_;
  std::uint64_t next_ = 1;
  std::uint64_t consumed_ = 0;
  std::uint64_t weight_ = 0;  // of all weights_
  Ring<Weight> weights_;      // of what is not consumed, ascending
};

}  // namespace fairlead::datapath
