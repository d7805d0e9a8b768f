// A progress domain: ports, queue pairs and memory regions under one lock, advanced by whoever polls.
//
// A poller tries the lock and goes on without it if another advances the domain just now. A poster queues its work,
// rings the doorbell, and sends at once if the lock is free; else the holder sends for it before it is done.
// The watcher (watcher.h) advances a domain that nobody polls.
// Lock order: a queue pair's post mutexes, then the domain, then a completion queue's or an event queue's mutex.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "verbs/soft/congestion/dcqcn.h"
#include "verbs/soft/counter_page.h"
#include "verbs/soft/flow.h"
#include "verbs/soft/intrusive_list.h"
#include "verbs/soft/lender.h"
#include "verbs/soft/management.h"
#include "verbs/soft/memory.h"
#include "verbs/soft/port/packet_port.h"
#include "verbs/soft/qp.h"
#include "verbs/soft/qp_table.h"
#include "verbs/soft/timer_queue.h"
#include "verbs/soft/window.h"

namespace fairlead::soft {

/// A port, what is about to leave through it, and the windows of the peers behind it.
struct PortSlot {
  explicit PortSlot(std::unique_ptr<PacketPort> owned)
      : port(std::move(owned)), least_charge(port->least_charge()), reads(port->receive_window()) {}
  std::unique_ptr<PacketPort> port;
  const std::uint32_t least_charge;
  TxBatch batch;
  Window reads;  // what READs have asked for and not received
  std::unordered_map<Gid, std::unique_ptr<Window>, GidHash> peers;
  std::unordered_map<Gid, std::unique_ptr<Flow>, GidHash> flows;
  Psn next_mad_psn;                       // of QP1
  std::optional<DcqcnConfig> congestion;  // what its queue pairs begin with
};

class Domain {
 public:
  Domain(const Clock& clock, std::uint64_t seed);
  ~Domain();

  // Any thread.
  void lock() noexcept;
  [[nodiscard]] bool try_lock() noexcept;
  void unlock() noexcept;
  /// Advances the domain if nobody else does. Yields the core once nothing has happened for a while.
  void poll() noexcept;
  /// The queue pair has new work; sends it if nobody else will.
  void ring(Qp& qp) noexcept;
  [[nodiscard]] std::uint64_t polls() const noexcept { return polls_.load(std::memory_order_relaxed); }
  /// Completion queues that wait for an event, so that no poll is to be expected.
  [[nodiscard]] int armed() const noexcept { return armed_.load(std::memory_order_relaxed); }
  void count_armed(int by) noexcept;
  /// Called, with or without the lock, when the watcher must look again. Set once, before use.
  void set_alarm(std::function<void()> alarm) { alarm_ = std::move(alarm); }

  // Under the lock.
  /// Receives, answers, retransmits and sends. True if anything happened.
  bool progress() noexcept;
  [[nodiscard]] PortSlot& add_port(std::unique_ptr<PacketPort> port);
  /// The port of an address; null where there is none.
  [[nodiscard]] PortSlot* find_port(const Gid& address) noexcept;
  [[nodiscard]] Window& peer_window(PortSlot& port, const Gid& peer);
  /// What UC and UD have on their way to a peer.
  [[nodiscard]] Flow& flow(PortSlot& port, const Gid& peer);
  [[nodiscard]] Flow* find_flow(PortSlot& port, const Gid& peer) noexcept;
  void owes_receipt(Flow& flow);
  /// Gives the queue pair a number. False when all are in use.
  [[nodiscard]] bool put(Qp& qp);
  void remove(Qp& qp) noexcept;
  [[nodiscard]] Qp* find(std::uint32_t number) const noexcept { return queue_pairs_.find(number); }
  /// The queue pairs of a context that closes neither send nor take anything any more.
  void silence(const Device& device) noexcept;
  /// The queue pair may have something to send.
  void make_ready(Qp& qp) noexcept { ready_.push_back(qp.ready); }
  /// The queue pair owes an acknowledgement that may wait a little for a message of its own to leave with. Only while
  /// an application polls now and then: it is about to answer.
  void hold(Qp& qp) noexcept;
  [[nodiscard]] bool polled() const noexcept { return now_ < polled_at_ + kPollingMeans; }
  /// Sends what the queue pair holds back; for one that is about to end.
  void answer_held(Qp& qp) noexcept;
  /// Once all batches were sent, unreliable::on_departed runs for it.
  void departs(Qp& qp) noexcept { departing_.push_back(qp.departing); }
  void give_back(Window& window, std::size_t bytes) noexcept;
  /// There must be a progress() at this time.
  void set_deadline(Nanos at) noexcept;
  /// The queue pair's deadlines must be looked at by then.
  void wake(Qp& qp, Nanos at) noexcept {
    timers_.wake(qp.timer, at);
    set_deadline(at);
  }
  [[nodiscard]] Nanos next_deadline() const noexcept;
  [[nodiscard]] Nanos now() const noexcept { return now_; }
  /// What now() was read from when the lock was taken. Any thread.
  [[nodiscard]] const Clock& clock() const noexcept { return clock_; }
  /// A batch with room for a packet of so many payload pieces.
  [[nodiscard]] TxBatch& batch(PortSlot& slot, std::size_t pieces) noexcept;
  /// Sends what all batches hold: whoever completes requests whose packets may still be in one calls this first.
  void send_batches() noexcept;
  /// Sends what the port's batch holds.
  void flush(PortSlot& slot) noexcept {
    if (!slot.batch.empty()) send_batch(slot);
  }
  /// Who serves QP1; null for nobody.
  void set_management(ManagementHandler* handler) noexcept { management_ = handler; }
  [[nodiscard]] ManagementHandler* management() const noexcept { return management_; }
  /// The watcher sleeps until then (0: it does not sleep); an earlier deadline raises the alarm.
  void set_watcher_sleep(Nanos until) noexcept { watcher_sleeps_until_ = until; }
  /// Makes a sleeping watcher look at the ports again.
  void wake_watcher() noexcept {
    if (alarm_) alarm_();
  }
  [[nodiscard]] std::vector<int> wait_fds() const;
  [[nodiscard]] std::size_t queue_pairs() const noexcept { return queue_pairs_.size(); }
  [[nodiscard]] std::size_t queue_pair_limit() const noexcept { return queue_pairs_.limit(); }
  /// Gives queue pairs numbers of this partition. Before there are any.
  void set_partition(std::uint8_t partition) noexcept { queue_pairs_.set_partition(partition); }

  MrTable regions;
  Lender lender{*this};
  CounterPage counter_page;
  Counters& counters = counter_page.counters();

 private:
  static constexpr std::size_t kRxBurst = 16;  // acknowledgements leave at least this often
  static constexpr Nanos kPollingMeans = 5 * kMillisecond;

  void take_doorbells() noexcept;
  void look_at_work_of(Qp& qp) noexcept;
  void receive(PortSlot& slot, const RxPacket& raw) noexcept;
  [[nodiscard]] bool icrc_valid(Qp& qp, const PortSlot& slot, const RxPacket& raw) noexcept;
  void run_timers() noexcept;
  void release_held() noexcept;
  void send_receipts() noexcept;
  void call_waiting() noexcept;
  void transmit() noexcept;
  void send_batch(PortSlot& slot) noexcept;

  const Clock& clock_;
  std::mutex mutex_;
  std::atomic<int> waiters_{0};
  std::atomic<Qp*> rung_{nullptr};
  std::atomic<std::uint64_t> polls_{0};
  std::atomic<int> armed_{0};
  std::function<void()> alarm_;

  std::vector<std::unique_ptr<PortSlot>> ports_;
  std::array<RxPacket, kRxBurst> received_;
  ManagementHandler* management_ = nullptr;
  QpTable queue_pairs_;
  List<Qp> ready_;
  List<Window> roused_;  // whose lines of waiting queue pairs move on
  List<Qp> held_;        // oldest first
  Nanos polled_at_ = 0;  // when an application's poll last advanced the domain
  List<Qp> departing_;
  std::vector<Flow*> owing_;  // that owe a receipt
  TimerQueue timers_;
  Nanos busy_at_ = 0;  // when a poll last found something
  Nanos now_ = 0;
  Nanos next_timer_ = 0;  // nothing is to be done earlier; 0: nothing at all
  Nanos watcher_sleeps_until_ = 0;
};

/// The domain's lock for a scope.
class DomainLock {
 public:
  explicit DomainLock(Domain& domain) noexcept : domain_(domain) { domain_.lock(); }
  ~DomainLock() { domain_.unlock(); }
  DomainLock(const DomainLock&) = delete;
  DomainLock& operator=(const DomainLock&) = delete;

 private:
  Domain& domain_;
};

}  // namespace fairlead::soft
