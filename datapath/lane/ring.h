// A queue over a growing ring: no allocation once it has grown to what the work needs. Not thread-safe.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace fairlead::datapath {

template <typename T>
class Ring {
 public:
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] T& front() noexcept { return slots_[head_]; }
  [[nodiscard]] T& back() noexcept { return slots_[(head_ + count_ - 1) & (slots_.size() - 1)]; }

  template <typename U = T>
  void push_back(U&& value) {
    if (count_ == slots_.size()) grow();
    slots_[(head_ + count_) & (slots_.size() - 1)] = std::forward<U>(value);
    ++count_;
  }
  void push_front(T value) {
    if (count_ == slots_.size()) grow();
    head_ = (head_ + slots_.size() - 1) & (slots_.size() - 1);
    slots_[head_] = std::move(value);
    ++count_;
  }
  /// The i-th from the front.
  [[nodiscard]] T& operator[](std::size_t i) noexcept { return slots_[(head_ + i) & (slots_.size() - 1)]; }

  [[nodiscard]] const T& operator[](std::size_t i) const noexcept { return slots_[(head_ + i) & (slots_.size() - 1)]; }

  T pop_front() noexcept {
    T value = std::move(slots_[head_]);
    drop_front();
    return value;
  }
  /// For a front that was moved from: what is left of it stays in its slot.
  void drop_front() noexcept {
    head_ = (head_ + 1) & (slots_.size() - 1);
    --count_;
  }
  void pop_back() noexcept {
    back() = T{};
    --count_;
  }
  void clear() noexcept {
    while (!empty()) pop_back();
  }

 private:
  void grow() {
    std::vector<T> larger(slots_.empty() ? 64 : slots_.size() * 2);
    for (std::size_t i = 0; i < count_; ++i) larger[i] = std::move(slots_[(head_ + i) & (slots_.size() - 1)]);
    slots_.swap(larger);
    head_ = 0;
  }
  std::vector<T> slots_;  // a power of two of them
  std::size_t head_ = 0;
  std::size_t count_ = 0;
};

}  // namespace fairlead::datapath
