// A simulated world: one clock, one source of chance, and what is to happen when. A seed repeats exactly.
//
// Threads: one. Nothing here depends on addresses or on the real time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <utility>

#include "datapath/lane/lane.h"

namespace fairlead::simulation {

using datapath::Clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

class World {
 public:
  explicit World(std::uint64_t seed) : random_(seed) {}

  [[nodiscard]] Clock::time_point now() const noexcept { return now_; }
  /// 0..bound-1.
  [[nodiscard]] std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
  [[nodiscard]] bool chance(double probability) {
    return static_cast<double>(random_() >> 11) * 0x1.0p-53 < probability;
  }
  [[nodiscard]] std::uint64_t bits() { return random_(); }

  void at(Clock::time_point when, std::function<void()> what) {
    agenda_.emplace(std::pair(when, ++number_), std::move(what));
  }
  void in(microseconds delay, std::function<void()> what) { at(now_ + delay, std::move(what)); }
  /// Goes on by `step`, and less if something is due before.
  void advance(microseconds step) {
    const Clock::time_point end = now_ + step;
    while (!agenda_.empty() && agenda_.begin()->first.first <= end) {
      auto first = agenda_.extract(agenda_.begin());
      now_ = std::max(now_, first.key().first);
      first.mapped()();
    }
    now_ = end;
  }

 private:
  Clock::time_point now_{std::chrono::hours(1)};
  std::mt19937_64 random_;
  std::uint64_t number_ = 0;
  std::map<std::pair<Clock::time_point, std::uint64_t>, std::function<void()>> agenda_;
};

}  // namespace fairlead::simulation
