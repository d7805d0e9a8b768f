// A completion queue: a ring filled under the domain's lock and emptied by whoever polls.
//
// Threads: push() under the domain's lock; pop() and arm() from any thread. What was written before push() is visible
// after the pop() that returns the completion.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "verbs/soft/events.h"

namespace fairlead::soft {

class Device;

class Cq : public ibv_cq_ex {
 public:
  Cq(Device& device, int entries, void* user, CompChannel* channel);
  ~Cq();

  /// False when it was full: the completion is lost and the queue is in error for good (IBTA 11.2.8).
  bool push(const ibv_wc& completion, bool solicited) noexcept;
  /// Up to `count` completions; negative when the queue overflowed and is empty.
  int pop(int count, ibv_wc* to) noexcept;
  /// True for the first caller after an overflow.
  [[nodiscard]] bool report_overflow() noexcept { return !overflow_reported_.exchange(true); }
  /// The next completion (solicited or failed only, if so asked) raises an event on the channel.
  void arm(bool solicited_only) noexcept;
  [[nodiscard]] bool armed() const noexcept { return armed_.load(std::memory_order_relaxed) != kUnarmed; }

  Device& device() const noexcept { return device_; }
  /// Waits until all delivered events were acknowledged, and takes back the undelivered.
  void settle_events();
  void count_delivered() noexcept;
  void count_async_delivered() noexcept;

  std::atomic<int> users{0};  // queue pairs attached

 private:
  enum Armed : int { kUnarmed, kSolicited, kAny };

  Device& device_;
  CompChannel* channel_;
  std::uint32_t mask_;
  std::uint32_t limit_;
  std::unique_ptr<ibv_wc[]> ring_;
  std::mutex consumer_;  // orders pollers; guards head_'s advance
  alignas(64) std::atomic<std::uint32_t> head_{0};
  alignas(64) std::atomic<std::uint32_t> tail_{0};
  std::atomic<int> armed_{kUnarmed};
  std::atomic<bool> overflowed_{false};
  std::atomic<bool> overflow_reported_{false};
  std::uint32_t delivered_ = 0;        // under ibv_cq::mutex
  std::uint32_t async_delivered_ = 0;  // likewise
};

}  // namespace fairlead::soft
