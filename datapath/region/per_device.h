// One thing for each device, in the order of their numbers: those of devices that are known stay where they are while
// the next one's comes, so that who works with a device reads its own without a lock.
//
// Threads: one at a time changes it. What was there when a device became known to a thread, that thread may read.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <memory>

#include "datapath/region/remote_region.h"

namespace fairlead::datapath {

template <typename T>
class PerDevice {
 public:
  /// Errors are the caller's: there are kMaxOffers at most.
  void push_back(const T& value) {
    assert(size_ < kMaxOffers);
    if (size_ >= kFirst && rest_ == nullptr) rest_ = std::make_unique<Rest>();
    at(size_++) = value;
  }
  /// Who changes it.
  [[nodiscard]] T take_last() noexcept { return at(--size_); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] const T& operator[](std::size_t device) const noexcept {
    return device < kFirst ? first_[device] : (*rest_)[device - kFirst];
  }

 private:
  static constexpr std::size_t kFirst = 4;  // as many as most engines have
  using Rest = std::array<T, kMaxOffers - kFirst>;

  T& at(std::size_t device) noexcept { return device < kFirst ? first_[device] : (*rest_)[device - kFirst]; }

  std::size_t size_ = 0;
  std::array<T, kFirst> first_{};
  std::unique_ptr<Rest> rest_;
};

}  // namespace fairlead::datapath
