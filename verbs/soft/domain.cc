#include "verbs/soft/domain.h"

#include <sched.h>

#include <algorithm>
#include <bit>

#include "verbs/soft/completer.h"
#include "verbs/soft/congestion/control.h"
#include "verbs/soft/memory_windows.h"
#include "verbs/soft/receipts.h"
#include "verbs/soft/requester.h"
#include "verbs/soft/responder.h"
#include "verbs/soft/uc_responder.h"
#include "verbs/soft/ud_responder.h"
#include "verbs/soft/unreliable.h"
#include "verbs/soft/wire/icrc.h"
#include "verbs/soft/wire/packet.h"

namespace fairlead::soft {
namespace {

constexpr unsigned kRxRounds = 16;  // bounds one progress()
constexpr unsigned kPacketsPerTurn = 32;
constexpr unsigned kTurns = 16;
constexpr Nanos kMostHold = 20 * kMicrosecond;
constexpr unsigned kLooks = 4;
constexpr Nanos kIdleToYield = 8 * kMicrosecond;  // longer than a message to and fro takes
constexpr std::uint8_t kExactIcrcsToTrust = 2;
constexpr std::uint16_t kMaxSegments = 64;

constexpr Nanos kHeldReceiptCheck = 200 * kMicrosecond;
constexpr Nanos kLoanCheck = 20 * kMicrosecond;

bool serves(ibv_qp_type type, Service service) noexcept {
  switch (type) {
    case IBV_QPT_RC:
      return service == Service::kRc;
    case IBV_QPT_UC:
      return service == Service::kUc || service == Service::kManufacturer;
    default:
      return service == Service::kUd || service == Service::kManufacturer;
  }
}

}  // namespace

Domain::Domain(const Clock& clock, std::uint64_t seed)
    : regions(seed ^ 0x9e3779b97f4a7c15), clock_(clock), queue_pairs_(seed) {
  now_ = clock_.now();
}

Domain::~Domain() = default;

void Domain::lock() noexcept {
  // Pollers that try the lock in a tight loop would starve a waiter; they stand back while there is one.
  waiters_.fetch_add(1);
  mutex_.lock();
  waiters_.fetch_sub(1);
  now_ = clock_.now();
}

bool Domain::try_lock() noexcept {
  if (waiters_.load(std::memory_order_relaxed) != 0 || !mutex_.try_lock()) return false;
  now_ = clock_.now();
  return true;
}

void Domain::unlock() noexcept {
  while (true) {
    send_batches();
    mutex_.unlock();
    // Pairs with ring(): either its try_lock succeeds or its push is seen here.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (rung_.load(std::memory_order_relaxed) == nullptr || !try_lock()) return;
    take_doorbells();
    transmit();
  }
}

void Domain::poll() noexcept {
  if (!try_lock()) return;
  polls_.store(polls() + 1, std::memory_order_relaxed);
  polled_at_ = now_;
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
  unlock();
  // The peer may be waiting for this very core.
  if (yields) ::sched_yield();
}

void Domain::ring(Qp& qp) noexcept {
  if (try_lock()) {
    look_at_work_of(qp);
  } else {
    if (qp.rung.exchange(true)) return;
    Qp* top = rung_.load(std::memory_order_relaxed);
    do {
      qp.next_rung = top;
    } while (!rung_.compare_exchange_weak(top, &qp));
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!try_lock()) return;
  }
  take_doorbells();
  transmit();
  unlock();
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

void Domain::count_armed(int by) noexcept {
  if (armed_.fetch_add(by) == 0 && by > 0 && alarm_) alarm_();
}

bool Domain::progress() noexcept {
  take_doorbells();
  bool busy = lender.release();
  for (const auto& slot : ports_) {
    for (unsigned round = 0; round < kRxRounds; ++round) {
      const std::size_t count = slot->port->rx_burst(received_, now_);
      if (count == 0) break;
      busy = true;
      for (std::size_t i = 0; i < count; ++i) receive(*slot, received_[i]);
      transmit();
      if (count < received_.size()) break;  // what came since can wait for the next call; the caller cannot
    }
  }
  if (next_timer_ != 0 && now_ >= next_timer_) run_timers();
  release_held();
  if (!ready_.empty() || !roused_.empty() || !owing_.empty()) transmit();
  return busy;
}

void Domain::hold(Qp& qp) noexcept {
  qp.receive.held_since = now_;
  held_.push_back(qp.held);
}

void Domain::release_held() noexcept {
  while (Qp* qp = held_.front()) {
    if (now_ < qp->receive.held_since + kMostHold) break;
    qp->receive.turns_answered = 0;  // it does not answer after all
    qp->held.unlink();
    make_ready(*qp);
  }
}

void Domain::answer_held(Qp& qp) noexcept {
  if (!qp.held.linked()) return;
  qp.held.unlink();
  responder::run(qp, 1);
}

PortSlot& Domain::add_port(std::unique_ptr<PacketPort> port) {
  port->count_in(counters);
  ports_.push_back(std::make_unique<PortSlot>(std::move(port)));
  if (ports_.back()->port->lends()) lender.set_port(*ports_.back());
  return *ports_.back();
}

PortSlot* Domain::find_port(const Gid& address) noexcept {
  for (const auto& slot : ports_) {
    if (slot->port->address() == address) return slot.get();
  }
  return nullptr;
}

Window& Domain::peer_window(PortSlot& slot, const Gid& peer) {
  auto& window = slot.peers[peer];
  if (!window) window = std::make_unique<Window>(slot.port->peer_window());
  return *window;
}

Flow& Domain::flow(PortSlot& slot, const Gid& peer) {
  auto& flow = slot.flows[peer];
  if (!flow) flow = std::make_unique<Flow>(slot, peer, peer_window(slot, peer));
  return *flow;
}

Flow* Domain::find_flow(PortSlot& slot, const Gid& peer) noexcept {
  const auto found = slot.flows.find(peer);
  return found == slot.flows.end() ? nullptr : found->second.get();
}

void Domain::owes_receipt(Flow& flow) {
  if (std::find(owing_.begin(), owing_.end(), &flow) == owing_.end()) owing_.push_back(&flow);
}

bool Domain::put(Qp& qp) {
  timers_.reserve(std::bit_ceil(queue_pairs_.size() + 1));
  qp.qp_base.qp_num = queue_pairs_.add(qp);
  return qp.qp_base.qp_num != 0;
}

void Domain::remove(Qp& qp) noexcept {
  take_doorbells();
  qp.ready.unlink();
  qp.waiting.unlink();
  timers_.remove(qp.timer);
  qp.departing.unlink();
  queue_pairs_.remove(qp.number());
  unbind_windows_of(regions, qp.number());
}

void Domain::silence(const Device& device) noexcept {
  queue_pairs_.for_each([&device](Qp& qp) {
    if (&qp.device != &device) return;
    qp.set_state(IBV_QPS_RESET);
    qp.detach();
  });
}

void Domain::give_back(Window& window, std::size_t bytes) noexcept {
  window.give_back(bytes);
  if (window.has_waiting()) roused_.push_back(window.roused);
}

void Domain::set_deadline(Nanos at) noexcept {
  if (next_timer_ == 0 || at < next_timer_) next_timer_ = at;
  if (watcher_sleeps_until_ != 0 && at < watcher_sleeps_until_ && alarm_) {
    watcher_sleeps_until_ = 0;
    alarm_();
  }
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

TxBatch& Domain::batch(PortSlot& slot, std::size_t pieces) noexcept {
  if (!slot.batch.has_room(pieces)) send_batch(slot);
  return slot.batch;
}

std::vector<int> Domain::wait_fds() const {
  std::vector<int> fds;
  for (const auto& slot : ports_) {
    if (const int fd = slot->port->wait_fd(); fd >= 0) fds.push_back(fd);
  }
  return fds;
}

void Domain::receive(PortSlot& slot, const RxPacket& raw) noexcept {
  counters.rcvd_pkts.add();
  if (management::addressed(raw.bytes)) return management::receive(*this, slot, raw, management_);
  Packet packet;
  if (parse(raw.bytes, packet) != ParseError::kNone) return counters.drop_malformed.add();
  Qp* qp = find(packet.bth.dest_qpn);
  if (qp == nullptr || (qp->connected() && qp->port != &slot)) return counters.drop_no_qp.add();
  const bool notification = packet.info->kind == PacketKind::kCongestionNotification;  // of any service
  if (!notification && !serves(qp->type(), packet.info->service)) return counters.drop_wrong_service.add();
  if (qp->connected() && (raw.source != qp->route.destination || raw.version != qp->route.version))
    return counters.drop_wrong_source.add();
  // The upper bit tells full from limited members; both may talk to us, a full member.
  if (((packet.bth.pkey ^ kDefaultPKey) & 0x7fff) != 0) return counters.drop_pkey.add();
  if (!icrc_valid(*qp, slot, raw)) return counters.drop_icrc.add();
  if (raw.congestion_marked() && qp->congestion && !packet.payload.empty()) on_congestion_mark(*qp);
  if (notification) return on_congestion_notification(*qp);
  if (qp->connected() && qp->current_state() == IBV_QPS_RTR) qp->establish();
  if (packet.info->kind == PacketKind::kReceipt) return receipts::take(*this, slot, raw.source, packet);
  switch (qp->type()) {
    case IBV_QPT_UD:
      return ud_responder::on_packet(*qp, slot, raw, packet);
    case IBV_QPT_UC:
      return uc_responder::on_packet(*qp, packet);
    default:
      if (packet.bth.kin) qp->receive.peer_is_kin = true;
      if (packet.info->carried_ack) completer::on_response(*qp, carried_by(packet));
      return packet.info->request() ? responder::on_request(*qp, packet) : completer::on_response(*qp, packet);
  }
}

bool Domain::icrc_valid(Qp& qp, const PortSlot& slot, const RxPacket& raw) noexcept {
  const UdpFrame frame = headers_of(raw, *slot.port);
  const auto covered = raw.bytes.first(raw.bytes.size() - kIcrcBytes);
  const std::uint32_t difference = icrc(frame, covered) ^ load_icrc(covered.data() + covered.size());
  std::uint8_t& exact = qp.receive.exact_icrcs;
  if (difference == 0) {
    if (qp.connected() && exact < kExactIcrcsToTrust) ++exact;
    return true;
  }
  if (raw.ipv4_id_known) return false;
  const auto id = explain_by_ipv4_id(difference, raw.bytes.size());
  if (!id || !frame.source.is_ipv4()) return false;
  // A peer whose ids were known so far (zero, or a segment's number) does not take to counting.
  if (exact == kExactIcrcsToTrust && (*id ^ raw.ipv4_id_guess) >= kMaxSegments) return false;
  counters.icrc_explained.add();
  return true;
}

void Domain::run_timers() noexcept {
  next_timer_ = 0;
  while (Qp* qp = timers_.pop_due(now_)) {
    if (qp->send.deadline != 0 && now_ >= qp->send.deadline) completer::on_timer(*qp);
    if (qp->send.deadline != 0) timers_.wake(qp->timer, std::max(qp->send.deadline, now_ + 1));
    if (qp->paced_until > now_) {
      timers_.wake(qp->timer, qp->paced_until);
    } else if (qp->paced_until != 0) {
      qp->paced_until = 0;
      make_ready(*qp);
    }
  }
  for (const auto& slot : ports_) {
    for (const auto& [peer, flow] : slot->flows) {
      if (const std::size_t freed = flow->on_timer(now_); freed > 0) give_back(flow->window(), freed);
      if (flow->deadline() != 0) set_deadline(flow->deadline());
    }
  }
  if (management_ != nullptr) management_->run_timers();
  if (const Nanos next = timers_.next(); next != 0) set_deadline(next);
}

// Queue pairs take turns, so that none starves behind one with much to send.
// One at a time: thousands may wait for room that a few of them fill.
void Domain::call_waiting() noexcept {
  Window* window = roused_.front();
  if (window == nullptr) return;
  if (Qp* qp = window->call()) {
    make_ready(*qp);
  } else {
    window->roused.unlink();
  }
}

void Domain::transmit() noexcept {
  for (unsigned turn = 0; turn < kTurns; ++turn) {
    call_waiting();
    Qp* qp = ready_.pop_front();
    if (qp == nullptr) break;
    bool more = false;
    if (qp->type() == IBV_QPT_RC) {
      more = responder::run(*qp, kPacketsPerTurn);
      more = requester::run(*qp, kPacketsPerTurn) || more;
      more = more || (qp->receive.ack_due && !qp->held.linked());  // the requester let it go
    } else {
      more = unreliable::run(*qp, kPacketsPerTurn);
    }
    if (more) make_ready(*qp);
  }
  send_receipts();
  send_batches();
  while (Qp* qp = departing_.pop_front()) unreliable::on_departed(*qp);
  if (!ready_.empty() || !roused_.empty()) set_deadline(now_);
}

void Domain::send_receipts() noexcept {
  if (owing_.empty()) return;
  std::erase_if(owing_, [this](Flow* flow) { return receipts::send(*this, *flow); });
  if (!owing_.empty()) set_deadline(now_ + kHeldReceiptCheck);
}

void Domain::send_batches() noexcept {
  for (const auto& slot : ports_) {
    if (!slot->batch.empty()) send_batch(*slot);
  }
}

void Domain::send_batch(PortSlot& slot) noexcept {
  counters.sent_pkts.add(slot.batch.size());
  const std::uint64_t refused = slot.port->refused();
  slot.port->tx_burst(slot.batch);
  counters.send_err.add(slot.port->refused() - refused);
}

}  // namespace fairlead::soft
