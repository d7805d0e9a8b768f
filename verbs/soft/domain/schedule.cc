// The loop: who gets a turn, what is sent when, and what the clock brings.
#include <algorithm>
#include <bit>
#include <utility>

#include "base/system/core_sharing.h"
#include "verbs/soft/datagram/receipts.h"
#include "verbs/soft/datagram/unreliable.h"
#include "verbs/soft/domain/domain.h"
#include "verbs/soft/port/urgent_way.h"
#include "verbs/soft/rc/completer.h"
#include "verbs/soft/rc/memory_windows.h"
#include "verbs/soft/rc/requester.h"
#include "verbs/soft/rc/responder.h"
#include "verbs/soft/rc/retransmission.h"

namespace fairlead::soft {
namespace {

constexpr unsigned kTurns = 16;
// Beside a queue pair that has priority:
constexpr unsigned kTurnsInHurry = 2;
constexpr Nanos kMostHold = 20 * kMicrosecond;
constexpr unsigned kLooks = 4;
constexpr Nanos kIdleToYield = 8 * kMicrosecond;  // longer than a message to and fro takes
constexpr Nanos kHeldReceiptCheck = 200 * kMicrosecond;
constexpr Nanos kLoanCheck = 20 * kMicrosecond;

/// What one progress() does at a port.
struct Pace {
  unsigned looks;
  std::size_t received;  // at most, by each
  unsigned sent;         // at most, in a turn
};
constexpr Pace kUnhurried{16, Domain::kRxBurst, 32};
// Beside a queue pair that has priority: its packets wait behind what one progress() does at either end, and
constexpr Pace kInHurry{2, Domain::kRxBurst, 8};
constexpr Pace kApart{1, 2, 2};  // for nothing else, where they have a way of their own

}  // namespace

void Domain::unlock() noexcept {
  while (true) {
    send_batches();
    mutex_.unlock();
    // Pairs with ring(): either its try_lock succeeds or its push is seen here.
    if (rung_.load() == nullptr || !try_lock()) return;
    take_doorbells();
    transmit();
  }
}

void Domain::poll() noexcept {
  if (!try_lock()) return;
  polls_.store(activity().polls + 1, std::memory_order_relaxed);
  polled_at_ = now_;
  if (now_ >= put_off_again_ && patience_ != nullptr && patience_->slept_on()) {
    put_off_again_ = now_ + kPutOffEvery;
    patience_->put_off();
  }
  // In a conversation the answer is about to come: the caller's way round would take longer than looking again.
  const bool conversation = now_ < busy_at_ + kIdleToYield;
  bool busy = progress();
  for (unsigned look = 1; !busy && conversation && look < kLooks; ++look) busy = progress();
  if (busy) busy_at_ = now_;
  // A port that neither wakes nor wants to be looked at is a simulation's: nobody else is at its other end.
  const auto real = [](const std::unique_ptr<PortSlot>& slot) {
    return slot->port->wait_fd() >= 0 || slot->port->next_event() != 0;
  };
  const bool yields = now_ >= busy_at_ + kIdleToYield && std::any_of(ports_.begin(), ports_.end(), real);
  const Nanos now = now_, busy_at = busy_at_;
  unlock();
  // The peer may be waiting for this very core.
  if (yields) this_threads_core().offer(now, busy_at);
}

bool Domain::progress() noexcept {
  take_doorbells();
  // Whoever polls hears of what is urgent before others have their turn, which all of them have in every other call.
  const bool urgent_first = !std::exchange(urgent_alone_, false);
  bool busy = lender.release();
  bool sent = false;
  for (const auto& slot : ports_) {
    const bool apart = slot->urgent_way != nullptr && slot->urgent_way->open();
    const Pace pace = !hurries() ? kUnhurried : apart ? kApart : kInHurry;
    for (unsigned look = 0; look < pace.looks; ++look) {
      if (apart && urgent_first && take_urgent(*slot)) return true;
      const std::size_t count = slot->port->rx_burst(std::span(received_).first(pace.received), now_);
      if (count == 0) break;
      busy = true;
      for (std::size_t i = 0; i < count; ++i) receive(*slot, received_[i]);
      transmit();
      sent = apart && hurries();
      if (count < pace.received) break;  // what came since can wait for the next call; the caller cannot
    }
  }
  if (busy) moves_.store(activity().moves + 1, std::memory_order_relaxed);
  if (next_timer_ != 0 && now_ >= next_timer_) run_timers();
  release_held();
  if (!sent && (!ready_.empty() || !roused_.empty() || !owing_.empty())) transmit();
  return busy;
}

// True: there was something, which is all for this call.
bool Domain::take_urgent(PortSlot& slot) noexcept {
  const std::size_t count = slot.urgent_way->rx_urgent(received_, now_);
  if (count == 0) return false;
  urgent_alone_ = true;
  for (std::size_t i = 0; i < count; ++i) receive(slot, received_[i]);
  moves_.store(activity().moves + 1, std::memory_order_relaxed);
  for (Qp* qp = ready_.front(); qp != nullptr && qp->has_priority(); qp = ready_.front()) {
    qp->ready.unlink();
    if (!take_turn(*qp, kUnhurried.sent)) continue;
    ready_.push_front(qp->ready);
    break;
  }
  end_turns();
  if (!owing_.empty()) set_deadline(now_);
  return true;
}

void Domain::ring(Qp& qp) noexcept {
  if (qp.work_watch.will_look()) return;
  if (try_lock()) {
    look_at_work_of(qp);
  } else {
    if (qp.rung.exchange(true)) return;
    Qp* top = rung_.load(std::memory_order_relaxed);
    do {
      qp.next_rung = top;
    } while (!rung_.compare_exchange_weak(top, &qp));
    if (!try_lock()) return;
  }
  take_doorbells();
  transmit();
  unlock();
}

void Domain::take_doorbells() noexcept {
  if (rung_.load(std::memory_order_relaxed) == nullptr) return;  // what comes now, unlock() sees
  Qp* qp = rung_.exchange(nullptr);
  while (qp != nullptr) {
    Qp* next = qp->next_rung;
    qp->rung.store(false);  // what is posted from here on rings again
    look_at_work_of(*qp);
    qp = next;
  }
}

void Domain::look_at_work_of(Qp& qp) noexcept {
  if (qp.current_state() == IBV_QPS_ERR) {
    qp.flush();
  } else if (qp.current_state() == IBV_QPS_SQE) {
    qp.flush_sends();
  } else {
    make_ready(qp);
  }
}

void Domain::transmit() noexcept {
  for (unsigned turn = 0; turn < (hurries() ? kTurnsInHurry : kTurns); ++turn) {
    call_waiting();
    Qp* qp = ready_.pop_front();
    if (qp == nullptr) break;
    const bool steps_back = hurries() && !qp->has_priority();
    const bool passed = steps_back && qp->passed_by_urgent();
    const unsigned packets = (passed ? kApart : steps_back ? kInHurry : kUnhurried).sent;
    if (take_turn(*qp, packets)) ready_.push_back(qp->ready);  // behind the others, whatever its priority
    if (passed) break;
  }
  send_receipts();
  end_turns();
}

// What they put into batches leaves, and with it UC and UD requests complete.
void Domain::end_turns() noexcept {
  send_batches();
  while (Qp* qp = departing_.pop_front()) unreliable::on_departed(*qp);
  if (!ready_.empty() || !roused_.empty()) set_deadline(now_);
}

// True: there is more to send.
bool Domain::take_turn(Qp& qp, unsigned packets) noexcept {
  if (qp.type() != IBV_QPT_RC) return unreliable::run(qp, packets);
  const bool answers = responder::run(qp, packets);
  const bool asks = requester::run(qp, packets);
  if (answers || asks) return true;
  // The requester let an acknowledgement go. Behind answers that wait for their time it leaves with the last of them.
  const ReceiveState& r = qp.receive;
  return r.ack_due && r.reply_count == 0 && !qp.held.linked();
}

// Queue pairs take turns, so that none starves behind one with much to send.
// One at a time: thousands may wait for room that a few of them fill.
void Domain::call_waiting() noexcept {
  Window* window = roused_.front();
  if (window == nullptr) return;
  if (Qp* qp = window->call()) {
    make_ready_first(*qp);
  } else {
    window->roused.unlink();
  }
}

void Domain::send_receipts() noexcept {
  if (owing_.empty()) return;
  const Flow* first_kept = nullptr;
  while (Flow* flow = owing_.front()) {
    if (flow == first_kept) break;
    flow->owing.unlink();
    if (receipts::send(*this, *flow)) continue;
    if (first_kept == nullptr) first_kept = flow;
    owing_.push_back(flow->owing);
  }
  if (!owing_.empty()) set_deadline(now_ + kHeldReceiptCheck);
}

void Domain::send_held(Qp& qp) noexcept { responder::send_held_ack(qp); }

void Domain::send_again(Qp& qp) noexcept { retransmission::rewind(qp); }

void Domain::release_held() noexcept {
  while (Qp* qp = held_.front()) {
    if (now_ < qp->receive.held_since + kMostHold) break;
    qp->receive.turns_answered = 0;  // it does not answer after all
    qp->held.unlink();
    make_ready(*qp);
  }
}

void Domain::run_timers() noexcept {
  next_timer_ = 0;
  while (Qp* qp = timers_.pop_due(now_)) {
    if (qp->send.deadline != 0 && now_ >= qp->send.deadline) retransmission::on_timer(*qp);
    if (Nanos& at = qp->receive.look_at; at != 0 && now_ >= at) {
      at = 0;
      responder::report_missing(*qp);
      completer::look_for_missing(*qp);
    }
    if (qp->receive.look_at != 0) timers_.wake(qp->timer, std::max(qp->receive.look_at, now_ + 1));
    if (qp->send.deadline != 0) timers_.wake(qp->timer, std::max(qp->send.deadline, now_ + 1));
    if (qp->paced_until > now_) {
      timers_.wake(qp->timer, qp->paced_until);
    } else if (qp->paced_until != 0) {
      qp->paced_until = 0;
      make_ready(*qp);
    }
  }
  run_flow_timers();
  if (management_ != nullptr) management_->run_timers();
  if (const Nanos next = timers_.next(); next != 0) set_deadline(next);
}

Nanos Domain::next_deadline() const noexcept {
  if (!ready_.empty() || !roused_.empty()) return now_;
  Nanos next = next_timer_;
  if (const Qp* held = held_.front()) {
    const Nanos release = held->receive.held_since + kMostHold;
    next = next == 0 ? release : std::min(next, release);
  }
  if (lender.waiting() && (next == 0 || now_ + kLoanCheck < next)) next = now_ + kLoanCheck;
  for (const auto& slot : ports_) {
    const Nanos event = slot->port->next_event();
    if (event != 0 && (next == 0 || event < next)) next = event;
  }
  return next;
}

PortSlot& Domain::add_port(std::unique_ptr<PacketPort> port) {
  PortSlot& slot = keep_port(std::move(port));
  if (slot.port->lends()) lender.set_port(slot);
  return slot;
}

bool Domain::put(Qp& qp) {
  timers_.reserve(std::bit_ceil(queue_pairs_.size() + 1));
  qp.qp_base.qp_num = queue_pairs_.add(qp);
  return qp.qp_base.qp_num != 0;
}

void Domain::remove(Qp& qp) noexcept {
  take_doorbells();
  qp.detach();  // first, as it may still send something
  qp.ready.unlink();
  qp.waiting.unlink();
  timers_.remove(qp.timer);
  qp.departing.unlink();
  queue_pairs_.remove(qp.number());
  unbind_windows_of(regions, qp.number());
}

void Domain::silence(const DeviceBase& device) noexcept {
  queue_pairs_.for_each([&device](Qp& qp) {
    if (&qp.device != &device) return;
    qp.set_state(IBV_QPS_RESET);
    qp.detach();
  });
}

}  // namespace fairlead::soft
