// Loans of memory: payload that frames carry from where it lies, until the device has let go of them.
//
// Loans are numbered from 1 in the order in which they were made, and may end in any order; what counts is up to which
// number all have ended. Plain data, for both sides of a module. Threads: none of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace fairlead::soft {

struct Loans {
  std::uint64_t made = 0;
  std::uint64_t ended = 0;  // all up to this one
  [[nodiscard]] bool open() const noexcept { return ended != made; }
};

class LoanBook {
 public:
  /// The number of a new loan.
  std::uint64_t make() {
    open_.push_back(true);
    return ++loans_.made;
  }
  /// Once for each.
  void end(std::uint64_t number) noexcept {
    open_[static_cast<std::size_t>(number - loans_.ended - 1)] = false;
    for (; !open_.empty() && !open_.front(); open_.pop_front()) ++loans_.ended;
  }
  [[nodiscard]] Loans loans() const noexcept { return loans_; }

 private:
  Loans loans_;
  std::deque<bool> open_;  // of those behind loans_.ended
};

}  // namespace fairlead::soft
