// A completion queue: a ring filled under the domain's lock and emptied by whoever polls.
//
// Threads: push() under the domain's lock; pop(), arm() and the extended poll from any thread, except that
// of a single-threaded queue its user sees to it that only one polls at a time. What was written before push() is
// visible after the poll that returns the completion.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "verbs/soft/queues/events.h"

namespace fairlead::soft {

class DeviceBase;

struct CqOptions {
  bool timestamps = false;       // of the device's clock
  bool wallclock = false;        // nanoseconds since 1970
  bool single_threaded = false;  // one poller at a time, so no lock is needed
  bool ignore_overrun = false;   // what does not fit is lost, and nobody is told
};

class Cq : public ibv_cq_ex {
 public:
  Cq(DeviceBase& device, int entries, void* user, CompChannel* channel, const CqOptions& options = {});
  ~Cq();

  /// False when it was full: the completion is lost and the queue is in error for good (IBTA 11.2.8).
  bool push(const ibv_wc& completion, bool solicited) noexcept;
  /// Up to `count` completions; negative when the queue overflowed and is empty.
  int pop(int count, ibv_wc* to) noexcept;
  /// Makes room for `entries` or more. False when that is less than what it holds. Takes the pollers' lock, unless the
  /// caller has it between begin() and end(), then the domain's.
  [[nodiscard]] bool resize(int entries);
  /// Drops the completions of a queue pair that is gone or was reset, but for the one that is shown. Takes the pollers'
  /// lock, unless the caller has it between begin() and end(), then the domain's.
  void forget(std::uint32_t qp_num) noexcept;
  /// True for the first caller after an overflow.
  [[nodiscard]] bool report_overflow() noexcept { return !overflow_reported_.exchange(true); }
  /// The next completion (solicited or failed only, if so asked) raises an event on the channel.
  void arm(bool solicited_only) noexcept;
  [[nodiscard]] bool armed() const noexcept { return armed_.load(std::memory_order_relaxed) != kUnarmed; }

  // The extended poll (cq_ex.h): begin() or next() shows the oldest completion, which stays in its place until the
  // next call. After a begin() that answered 0 the queue is the caller's until end().
  /// 0, or ENOENT when it is empty, or EOVERFLOW when it overflowed before.
  int begin() noexcept;
  int next() noexcept;
  void end() noexcept;
  [[nodiscard]] const ibv_wc& shown() const noexcept { return ring_[shown_ & mask_]; }
  [[nodiscard]] Nanos shown_timestamp() const noexcept { return times_[shown_ & mask_].device; }
  [[nodiscard]] Nanos shown_wallclock() const noexcept { return times_[shown_ & mask_].wall; }

  /// Whatever was completed has been polled.
  [[nodiscard]] bool empty() const noexcept {
    return head_.load(std::memory_order_relaxed) == tail_.load(std::memory_order_relaxed);
  }

  DeviceBase& device() const noexcept { return device_; }
  /// Waits until all delivered events were acknowledged, and takes back the undelivered.
  void settle_events();
  void count_delivered() noexcept;
  void count_async_delivered() noexcept;

  std::atomic<int> users{0};  // queue pairs and shared receive queues attached

 private:
  enum Armed : int { kUnarmed, kSolicited, kAny };
  struct Times {
    Nanos device = 0;
    Nanos wall = 0;
  };

  void lock_consumer() noexcept {
    if (!options_.single_threaded) consumer_.lock();
  }
  void unlock_consumer() noexcept {
    if (!options_.single_threaded) consumer_.unlock();
  }
  void show() noexcept;
  void stamp(Times& times) const noexcept;
  void raise_event(bool solicited) noexcept;

  DeviceBase& device_;
  const CqOptions options_;
  CompChannel* channel_;
  std::uint32_t mask_;
  std::uint32_t limit_;
  std::vector<ibv_wc> ring_;
  std::vector<Times> times_;  // beside it, if any were asked for
  std::mutex consumer_;       // orders pollers; guards head_'s advance
  std::uint32_t shown_ = 0;   // between begin() and end()
  // Who is there; nobody: none is shown.
  std::atomic<std::thread::id> poller_{std::thread::id()};
  alignas(64) std::atomic<std::uint32_t> head_{0};
  alignas(64) std::atomic<std::uint32_t> tail_{0};
  std::atomic<int> armed_{kUnarmed};
  std::atomic<bool> overflowed_{false};
  std::atomic<bool> overflow_reported_{false};
  std::uint32_t delivered_ = 0;        // under ibv_cq::mutex
  std::uint32_t async_delivered_ = 0;  // likewise
};

// ibv_cq_ex begins with the fields of ibv_cq.
[[nodiscard]] inline Cq& impl(ibv_cq* cq) noexcept { return static_cast<Cq&>(*reinterpret_cast<ibv_cq_ex*>(cq)); }
[[nodiscard]] inline Cq& impl(ibv_cq_ex* cq) noexcept { return static_cast<Cq&>(*cq); }

}  // namespace fairlead::soft
