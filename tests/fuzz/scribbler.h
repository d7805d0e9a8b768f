// A thread that changes bytes of shared memory and changes them back, while who reads them is at it: what was checked
// must be what is used. What it does is no input's, so a finding may take several runs to come again.
//
// Not for TSan, which is right about it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace fairlead::fuzz {

class Scribbler {
 public:
  /// In the beginnings of slots, or other places.
  Scribbler(std::vector<std::span<std::byte>> places, std::uint32_t seed)
      : places_(std::move(places)), thread_([this, seed](const std::stop_token& ends) { scribble(ends, seed); }) {
    while (!began_.load()) std::this_thread::yield();
  }

 private:
  void scribble(const std::stop_token& ends, std::uint32_t seed) {
    std::minstd_rand random(seed + 1);
    const auto pick = [&random](std::size_t below) { return random() % below; };
    while (!ends.stop_requested()) {
      const std::span<std::byte> place = places_[pick(places_.size())];
      const std::atomic_ref byte(place[pick(place.size())]);
      const std::byte before = byte.load(std::memory_order_relaxed);
      byte.store(before ^ static_cast<std::byte>(1U << pick(8)), std::memory_order_relaxed);
      for (std::size_t spins = pick(60); spins != 0; --spins) std::atomic_signal_fence(std::memory_order_seq_cst);
      byte.store(before, std::memory_order_relaxed);
      began_ = true;
    }
  }

  const std::vector<std::span<std::byte>> places_;
  std::atomic<bool> began_{false};
  std::jthread thread_;  // the last: it ends first
};

}  // namespace fairlead::fuzz
