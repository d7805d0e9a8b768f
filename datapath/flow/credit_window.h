// What a sender may have under way: sequenced messages that the peer's application has not taken, counted and weighed.
//
// Gives the sequence numbers out. What the peer's engine takes for itself counts for nothing: its application, which
// may not take events for a while, has no part in it. Notifications weigh nothing; a fragment weighs its bytes, and
// goes while the window has any room: so the peer holds up to one fragment more than it asked for, and one that is
// larger than the window passes. Pure. Threads: the driver.
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
  [[nodiscard]] bool open() const noexcept { return waiting_.size() < limits_.events && weight_ < limits_.bytes; }
  /// The number that is given out next. From 1 on.
  [[nodiscard]] std::uint64_t next() const noexcept { return next_; }

  /// Numbers a message of that many bytes, for the peer's application.
  std::uint64_t take(std::uint64_t bytes) {
    waiting_.push_back({next_, bytes});
    weight_ += bytes;
    return next_++;
  }
  /// Numbers one for the peer's engine.
  std::uint64_t take_uncounted() noexcept { return next_++; }
  /// `sequence` and what follows it was not sent after all: their numbers are given out again.
  void give_back(std::uint64_t sequence) noexcept {
    next_ = sequence;
    while (!waiting_.empty() && waiting_.back().sequence >= sequence) {
      weight_ -= waiting_.back().bytes;
      waiting_.pop_back();
    }
  }
  /// The peer's application has taken what came up to this number. Anything that cannot be is no news.
  void consumed(std::uint64_t sequence) noexcept {
    if (sequence <= consumed_ || sequence >= next_) return;
    consumed_ = sequence;
    while (!waiting_.empty() && waiting_.front().sequence <= sequence) weight_ -= waiting_.pop_front().bytes;
  }

 private:
  struct Counted {
    std::uint64_t sequence = 0;
    std::uint64_t bytes = 0;
  };

  Limits limits_;
  std::uint64_t next_ = 1;
  std::uint64_t consumed_ = 0;
  std::uint64_t weight_ = 0;  // of all that wait
  Ring<Counted> waiting_;     // to be consumed, ascending
};

}  // namespace fairlead::datapath
