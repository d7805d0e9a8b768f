// First in, first out, never more than kMost. Threads: a value; not synchronised.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>

namespace fairlead::shm {

template <typename T, std::size_t kMost>
class FixedQueue {
 public:
  [[nodiscard]] bool empty() const noexcept { return first_ == end_; }
  [[nodiscard]] bool full() const noexcept { return end_ - first_ == kMost; }
  [[nodiscard]] const T& front() const noexcept { return all_[first_ % kMost]; }
  void push(const T& value) noexcept {
    assert(end_ - first_ < kMost);
    all_[end_++ % kMost] = value;
  }
  void pop() noexcept { ++first_; }

 private:
  std::array<T, kMost> all_{};
  std::size_t first_ = 0, end_ = 0;
};

}  // namespace fairlead::shm
