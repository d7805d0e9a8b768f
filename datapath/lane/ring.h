// A queue over a growing ring: no allocation once it has grown to what the work needs. Not thread-safe.
#pragma once

#include <cstddef>
#include <new>
#include <utility>
#include <vector>

namespace fairlead::datapath {

template <typename T>
class Ring {
 public:
  Ring() = default;
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  Ring(Ring&& other) noexcept { swap(other); }
  Ring& operator=(Ring&& other) noexcept {
    Ring moved(std::move(other));
    swap(moved);
    return *this;
  }
  ~Ring() = default;

  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] T& front() noexcept { return slots_[head_]; }
  [[nodiscard]] T& back() noexcept { return slots_[(head_ + count_ - 1) & mask_]; }

  template <typename U = T>
  void push_back(U&& value) {
    if (count_ == room_) grow();
    slots_[(head_ + count_) & mask_] = std::forward<U>(value);
    ++count_;
  }
  /// The next push_back() or add_back() throws nothing of its own. False: there is no memory for it.
  [[nodiscard]] bool make_room() noexcept {
    try {
      if (count_ == room_) grow();
    } catch (const std::bad_alloc&) {
      return false;
    }
    return true;
  }
  /// Room for one more behind, which is to be filled: it holds what drop_front() left there.
  T& add_back() {
    if (count_ == room_) grow();
    return slots_[(head_ + count_++) & mask_];
  }
  void push_front(T value) {
    if (count_ == room_) grow();
    head_ = (head_ + mask_) & mask_;
    slots_[head_] = std::move(value);
    ++count_;
  }
  /// The i-th from the front.
  [[nodiscard]] T& operator[](std::size_t i) noexcept { return slots_[(head_ + i) & mask_]; }

  [[nodiscard]] const T& operator[](std::size_t i) const noexcept { return slots_[(head_ + i) & mask_]; }

  T pop_front() noexcept {
    T value = std::move(slots_[head_]);
    drop_front();
    return value;
  }
  /// For a front that was moved from: what is left of it stays in its slot.
  void drop_front() noexcept {
    head_ = (head_ + 1) & mask_;
    --count_;
  }
  void pop_back() noexcept {
    back() = T{};
    --count_;
  }
  void swap(Ring& other) noexcept {
    slots_.swap(other.slots_);
    std::swap(head_, other.head_);
    std::swap(count_, other.count_);
    std::swap(room_, other.room_);
    std::swap(mask_, other.mask_);
  }
  void clear() noexcept {
    while (!empty()) pop_back();
  }

 private:
  void grow() {
    std::vector<T> larger(slots_.empty() ? 64 : slots_.size() * 2);
    for (std::size_t i = 0; i < count_; ++i) larger[i] = std::move(slots_[(head_ + i) & mask_]);
    slots_.swap(larger);
    head_ = 0;
    room_ = slots_.size();
    mask_ = room_ - 1;
  }
  std::vector<T> slots_;  // a power of two of them
  std::size_t head_ = 0;
  std::size_t count_ = 0;
  std::size_t room_ = 0, mask_ = 0;  // of slots_: what a vector has to divide for
};

}  // namespace fairlead::datapath
