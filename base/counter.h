// A count that one thread at a time adds to and any thread reads.
#pragma once

#include <atomic>
#include <cstdint>

namespace fairlead {

class Counter {
 public:
  /// Not from two threads at a time: the caller's lock, or its turn as driver, sees to that.
  void add(std::uint64_t by = 1) noexcept { value_.store(get() + by, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

}  // namespace fairlead
