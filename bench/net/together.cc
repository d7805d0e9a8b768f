#include "bench/net/together.h"

#include <algorithm>

namespace fairlead::bench {

void Together::pass() {
  waiting_ = 0;
  ++meetings_;
  if (meetings_ == 2) {
    watch_.restart();
    began_ = std::chrono::steady_clock::now();
  } else if (meetings_ == 3) {
    seconds_ = std::chrono::duration<double>(last_ - began_).count();
    cpu_ = watch_.cpu();
  }
  passed_.notify_all();
}

void Together::meet(Time last) {
  std::unique_lock lock(mutex_);
  last_ = std::max(last_, last);
  const std::size_t meeting = meetings_;
  if (++waiting_ == loads_) {
    pass();
    return;
  }
  passed_.wait(lock, [&] { return meetings_ != meeting; });
}

void Together::leave() {
  const std::lock_guard lock(mutex_);
  failed_.store(true, std::memory_order_relaxed);
  --loads_;
  if (loads_ != 0 && waiting_ == loads_) pass();
}

}  // namespace fairlead::bench
