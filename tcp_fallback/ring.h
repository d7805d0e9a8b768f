// A first-in first-out queue that keeps its storage: no allocation once it has grown to what the work needs.
// Threads: a value; not synchronised.
#pragma once

#include <cassert>
#include <cstddef>
#include <utility>
#include <vector>

namespace fairlead::tcp_fallback {

template <typename T>
class Ring {
 public:
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// Element `index` counted from the front.
  [[nodiscard]] T& operator[](std::size_t index) noexcept {
    assert(index < size_);
    return slots_[(head_ + index) & (slots_.size() - 1)];
  }
  [[nodiscard]] T& front() noexcept { return (*this)[0]; }
  [[nodiscard]] T& back() noexcept { return (*this)[size_ - 1]; }

  T& push_back(const T& value) {
    if (size_ == slots_.size()) grow();
    ++size_;
    return back() = value;
  }
  void pop_front() noexcept {
    assert(size_ > 0);
    head_ = (head_ + 1) & (slots_.size() - 1);
    --size_;
  }

 private:
  void grow() {
    std::vector<T> larger(slots_.empty() ? 16 : slots_.size() * 2);  // always a power of two
    for (std::size_t i = 0; i < size_; ++i) larger[i] = (*this)[i];
    slots_ = std::move(larger);
    head_ = 0;
  }

  std::vector<T> slots_;
  std::size_t head_ = 0;
  std::size_t size_ = 0;
};

}  // namespace fairlead::tcp_fallback
