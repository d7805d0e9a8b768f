// A thread that looks for what is to come soon, without a pause, for longer than a sleep and a wake-up take: as the
// waits of CUDA's driver do, since a kernel of some hundred microseconds is over before who slept is awake.
//
// No more threads of the process do so at a time than a quarter of the processors it may use, so that they take none
// from who works; with fewer than four, nobody does. Threads: one for each object.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace fairlead {

class LongLook {
 public:
  static constexpr std::chrono::microseconds kAnybody{50}, kMost{5000};

  /// `most`: threads that may, its own among them.
  explicit LongLook(unsigned most = quarter()) noexcept : most_(most) {}
  ~LongLook() { end(); }
  LongLook(const LongLook&) = delete;
  LongLook& operator=(const LongLook&) = delete;

  /// Whether who has waited for so long is to look once more: anybody for kAnybody, who may for kMost.
  [[nodiscard]] bool goes_on(std::chrono::nanoseconds waited) noexcept {
    return waited < kAnybody || (waited < kMost && begin());
  }
  /// False: enough others do.
  [[nodiscard]] bool begin() noexcept {
    if (looks_) return true;
    unsigned others = lookers().load(std::memory_order_relaxed);
    while (others < most_ && !looks_) looks_ = lookers().compare_exchange_weak(others, others + 1);
    return looks_;
  }
  void end() noexcept {
    if (looks_) lookers().fetch_sub(1, std::memory_order_relaxed);
    looks_ = false;
  }

 private:
  static unsigned quarter() noexcept {
    static const unsigned of_processors = std::thread::hardware_concurrency() / 4;
    return of_processors;
  }
  static std::atomic<unsigned>& lookers() noexcept {
    static std::atomic<unsigned> count{0};
    return count;
  }

  const unsigned most_;
  bool looks_ = false;
};

}  // namespace fairlead
