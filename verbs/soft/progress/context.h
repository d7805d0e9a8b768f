// What everything that moves packets works with: the lock, the time, the ports and what waits at them, the regions, the
// counters. It knows no queue pair; domain/ stands on top and drives.
//
// A poller tries the lock and goes on without it if another advances the domain just now. Lock order: a queue pair's
// post mutexes or a completion queue's pollers' lock, then this lock, then a completion queue's or an event queue's
// mutex.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/counter.h"
#include "base/intrusive_list.h"
#include "base/recent_time.h"
#include "base/system/patience.h"
#include "base/timer_queue.h"
#include "verbs/soft/flow_control/port_slot.h"
#include "verbs/soft/memory/mr_table.h"
#include "verbs/soft/observe/counter_page.h"
#include "verbs/soft/progress/fenced_mutex.h"
#include "verbs/soft/progress/packet_store.h"

namespace fairlead::soft {

class ProgressContext {
 public:
  explicit ProgressContext(const Clock& clock) : clock_(clock), now_(clock.now()), real_(&clock == &steady_clock()) {}
  ProgressContext(const ProgressContext&) = delete;
  ProgressContext& operator=(const ProgressContext&) = delete;

  // Any thread.
  void lock() noexcept;
  [[nodiscard]] bool try_lock() noexcept;
  /// Before the lock is free, what was posted meanwhile is served.
  virtual void unlock() noexcept = 0;
  /// Advances the domain if nobody else does. Yields the core once nothing has happened for a while.
  virtual void poll() noexcept = 0;
  /// How often it was polled, how often packets were taken in, and how many WRITEs were placed without a completion.
  struct Activity {
    std::uint64_t polls, moves, placed;
  };
  [[nodiscard]] Activity activity() const noexcept {
    return {polls_.load(std::memory_order_relaxed), moves_.load(std::memory_order_relaxed), placed.get()};
  }
  /// Completion queues that wait for an event, so that no poll is to be expected.
  [[nodiscard]] int armed() const noexcept { return armed_.load(std::memory_order_relaxed); }
  void count_armed(int by) noexcept;
  /// Once, before use. `alarm` is called, with or without the lock, when the watcher must look again; its patience is
  /// what polls put off now and then.
  void set_watcher(std::function<void()> alarm, Patience& patience) {
    alarm_ = std::move(alarm);
    patience_ = &patience;
  }
  /// What now() was read from when the lock was taken.
  [[nodiscard]] const Clock& clock() const noexcept { return clock_; }

  // Under the lock.
  /// Receives, answers, retransmits and sends. True if anything happened.
  virtual bool progress() noexcept = 0;
  [[nodiscard]] Nanos now() const noexcept { return now_; }
  [[nodiscard]] bool polled() const noexcept { return now_ < polled_at_ + kPollingMeans; }
  /// There must be a progress() at this time.
  void set_deadline(Nanos at) noexcept;
  /// The watcher sleeps until then (0: it does not sleep); an earlier deadline raises the alarm.
  void set_watcher_sleep(Nanos until) noexcept;
  /// Makes a sleeping watcher look at the ports again.
  void wake_watcher() noexcept {
    if (alarm_) alarm_();
  }
  /// What is to be waited on now, for packets; nothing: some have come already.
  [[nodiscard]] std::optional<std::vector<int>> prepare_to_wait();

  /// The port of an address; null where there is none.
  [[nodiscard]] PortSlot* find_port(const Gid& address) noexcept;
  /// A batch with room for a packet of so many payload pieces.
  [[nodiscard]] TxBatch& batch(PortSlot& slot, std::size_t pieces) noexcept;
  /// Sends what all batches hold: whoever completes requests whose packets may still be in one calls this first.
  void send_batches() noexcept;
  /// Sends what the port's batch holds.
  void flush(PortSlot& slot) noexcept {
    if (!slot.batch.empty()) send_batch(slot);
  }
  void give_back(Window& window, std::size_t bytes) noexcept;

  /// Somebody is about to send to the peer.
  [[nodiscard]] PeerHold meet(PortSlot& port, const Gid& peer);
  void owes_receipt(Flow& flow) noexcept { owing_.push_back(flow.owing); }
  /// The flow's deadline must be looked at.
  void watch(Flow& flow) noexcept;

  MrTable regions;
  PacketStore packet_store;
  Counter placed;  // WRITEs that no completion tells of
  CounterPage counter_page;
  Counters& counters = counter_page.counters();

 protected:
  ~ProgressContext() = default;

  static constexpr Nanos kPollingMeans = 5 * kMillisecond;
  static constexpr Nanos kPutOffEvery = 2 * kMillisecond;

  PortSlot& keep_port(std::unique_ptr<PacketPort> port);
  void run_flow_timers() noexcept;

  const Clock& clock_;
  FencedMutex mutex_;
  std::atomic<int> waiters_{0};
  std::atomic<std::uint64_t> polls_{0};
  std::atomic<std::uint64_t> moves_{0};
  std::atomic<int> armed_{0};
  std::function<void()> alarm_;
  Patience* patience_ = nullptr;
  Nanos put_off_again_ = 0;

  std::vector<std::unique_ptr<PortSlot>> ports_;
  List<Window> roused_;  // whose lines of waiting queue pairs move on
  List<Flow> owing_;     // a receipt
  Nanos polled_at_ = 0;  // when an application's poll last advanced the domain
  Nanos now_;
  Nanos next_timer_ = 0;  // nothing is to be done earlier; 0: nothing at all

 private:
  void send_batch(PortSlot& slot) noexcept;
  void read_clock() noexcept;

  TimerQueue<Flow> flow_timers_;
  const bool real_;  // time, which passes while nobody looks: the last reading does for a microsecond or two
  RecentTime<Nanos> recent_;
  Nanos watcher_sleeps_until_ = 0;
};

/// The lock for a scope.
class DomainLock {
 public:
  explicit DomainLock(ProgressContext& context) noexcept : context_(context) { context_.lock(); }
  ~DomainLock() { context_.unlock(); }
  DomainLock(const DomainLock&) = delete;
  DomainLock& operator=(const DomainLock&) = delete;

 private:
  ProgressContext& context_;
};

/// What UC and UD sent: who waits for their share of the window moves on, too.
inline void give_back(ProgressContext& context, Flow& flow, std::size_t bytes) noexcept {
  context.give_back(flow.line(), 0);
  context.give_back(flow.window(), bytes);
}

}  // namespace fairlead::soft
