// What the roles of queue pairs work with, beside progress/context.h: which queue pairs there are, which of them want a
// turn, and what waits for a device to let go of memory.
//
// Threads: under the context's lock, but for ring().
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "verbs/soft/port/references.h"
#include "verbs/soft/progress/context.h"
#include "verbs/soft/qp/lender.h"
#include "verbs/soft/qp/qp.h"
#include "verbs/soft/qp/qp_table.h"

namespace fairlead::soft {

class QpContext : public ProgressContext {
 public:
  QpContext(const Clock& clock, std::uint64_t seed) : ProgressContext(clock), queue_pairs_(seed) {}

  /// The queue pair has new work; sends it if nobody else will. Any thread.
  virtual void ring(Qp& qp) noexcept = 0;

  /// The queue pair may have something to send.
  void make_ready(Qp& qp) noexcept {
    if (!qp.has_priority()) return ready_.push_back(qp.ready);
    hurries_until_ = now_ + kHurry;
    ready_.push_front(qp.ready);
  }
  /// It has waited for its turn, which is now: who has not would take the room that it was called for.
  void make_ready_first(Qp& qp) noexcept {
    qp.ready.unlink();
    ready_.push_front(qp.ready);
  }
  /// A queue pair that has priority had something to do just now: others take short turns.
  [[nodiscard]] bool hurries() const noexcept { return now_ < hurries_until_; }
  /// The queue pair owes an acknowledgement that may wait a little for a message of its own to leave with. Only while
  /// an application polls now and then: it is about to answer.
  void hold(Qp& qp) noexcept {
    qp.receive.held_since = now();
    held_.push_back(qp.held);
  }
  /// Sends the acknowledgement that the queue pair holds back, and nothing else; also for one that is about to end.
  void answer_held(Qp& qp) noexcept {
    if (qp.held.linked()) send_held(qp);
  }
  /// Of RC: all that is not acknowledged goes once more when its turn comes, and its windows have room again.
  virtual void send_again(Qp& qp) noexcept = 0;
  /// What the queue pair's packets refer to is the program's again.
  void take_back(Qp& qp) noexcept {
    if (!std::exchange(qp.refers, false)) return;
    send_batches();
    qp.route.references->withdraw(qp.route);
  }
  /// The same, of what any packet refers to there.
  void take_back(const std::byte* start, std::size_t bytes) noexcept {
    send_batches();
    for (const auto& slot : ports_) {
      if (slot->references != nullptr) slot->references->withdraw(start, bytes);
    }
  }
  /// No port looks at this memory any more; SIZE_MAX bytes: at any.
  void let_go(const std::byte* start, std::size_t bytes) noexcept {
    send_batches();
    for (const auto& slot : ports_) bytes != SIZE_MAX ? slot->port->unmap(start, bytes) : slot->port->end_loans();
  }
  /// Once all batches were sent, unreliable::on_departed runs for it.
  void departs(Qp& qp) noexcept { departing_.push_back(qp.departing); }
  /// The queue pair's deadlines must be looked at by then.
  void wake(Qp& qp, Nanos at) noexcept {
    timers_.wake(qp.timer, at);
    set_deadline(at);
  }

  /// What is missing before early packets must be looked at by then; 0: there is nothing.
  void look_at_gaps(Qp& qp, Nanos at) noexcept {
    Nanos& look_at = qp.receive.look_at;
    if (at == 0 || (look_at != 0 && look_at <= at)) return;
    look_at = at;
    wake(qp, at);
  }

  [[nodiscard]] Qp* find(std::uint32_t number) const noexcept { return queue_pairs_.find(number); }
  /// Whether packets for a queue pair of this number find this domain where processes share an address.
  [[nodiscard]] bool in_partition(std::uint32_t number) const noexcept { return queue_pairs_.in_partition(number); }
  [[nodiscard]] std::size_t queue_pairs() const noexcept { return queue_pairs_.size(); }

  Lender lender{*this};

 protected:
  ~QpContext() = default;

  virtual void send_held(Qp& qp) noexcept = 0;

  static constexpr Nanos kHurry = 2 * kMillisecond;

  QpTable queue_pairs_;
  List<Qp> ready_;
  Nanos hurries_until_ = 0;
  List<Qp> held_;  // oldest first
  List<Qp> departing_;
  TimerQueue<Qp> timers_;
};

}  // namespace fairlead::soft
