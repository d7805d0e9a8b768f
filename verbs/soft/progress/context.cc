#include "verbs/soft/progress/context.h"

#include <algorithm>
#include <bit>

namespace fairlead::soft {

void ProgressContext::lock() noexcept {
  // Pollers that try the lock in a tight loop would starve a waiter; they stand back while there is one.
  waiters_.fetch_add(1);
  mutex_.lock();
  waiters_.fetch_sub(1);
  read_clock();
}

bool ProgressContext::try_lock() noexcept {
  // In order behind what the caller left for the lock's holder: the waiter that is seen here will see that (ring()).
  if (waiters_.load() != 0 || !mutex_.try_lock()) return false;
  read_clock();
  return true;
}

void ProgressContext::read_clock() noexcept {
  now_ = real_ ? recent_.now([this] { return clock_.now(); }) : clock_.now();
}

void ProgressContext::count_armed(int by) noexcept {
  if (armed_.fetch_add(by) == 0 && by > 0 && alarm_) alarm_();
}

void ProgressContext::set_deadline(Nanos at) noexcept {
  if (next_timer_ == 0 || at < next_timer_) next_timer_ = at;
  if (watcher_sleeps_until_ != 0 && at < watcher_sleeps_until_ && alarm_) {
    watcher_sleeps_until_ = 0;
    alarm_();
  }
}

std::optional<std::vector<int>> ProgressContext::prepare_to_wait() {
  std::vector<int> fds;
  for (const auto& slot : ports_) {
    if (!slot->port->on_wait(true)) return std::nullopt;
    if (const int fd = slot->port->wait_fd(); fd >= 0) fds.push_back(fd);
  }
  return fds;
}

void ProgressContext::set_watcher_sleep(Nanos until) noexcept {
  watcher_sleeps_until_ = until;
  if (until != 0) return;
  for (const auto& slot : ports_) slot->port->on_wait(false);
}

PortSlot& ProgressContext::keep_port(std::unique_ptr<PacketPort> port) {
  port->count_in(counters);
  return *ports_.emplace_back(std::make_unique<PortSlot>(std::move(port)));
}

PortSlot* ProgressContext::find_port(const Gid& address) noexcept {
  for (const auto& slot : ports_) {
    if (slot->port->address() == address) return slot.get();
  }
  return nullptr;
}

TxBatch& ProgressContext::batch(PortSlot& slot, std::size_t pieces) noexcept {
  if (!slot.batch.has_room(pieces)) send_batch(slot);
  return slot.batch;
}

void ProgressContext::send_batches() noexcept {
  for (const auto& slot : ports_) flush(*slot);
}

void ProgressContext::send_batch(PortSlot& slot) noexcept {
  counters.sent_pkts.add(slot.batch.size());
  counters.sent_bytes.add(slot.batch.bytes());
  const std::uint64_t refused = slot.port->refused();
  slot.port->tx_burst(slot.batch);
  counters.send_err.add(slot.port->refused() - refused);
}

void ProgressContext::give_back(Window& window, std::size_t bytes) noexcept {
  window.give_back(bytes);
  if (window.has_waiting()) roused_.push_back(window.roused);
}

PeerHold ProgressContext::meet(PortSlot& slot, const Gid& peer) {
  PeerHold met = slot.meet(peer);
  std::size_t peers = 0;
  for (const auto& each : ports_) peers += each->peers();
  flow_timers_.reserve(std::bit_ceil(peers));
  return met;
}

void ProgressContext::watch(Flow& flow) noexcept {
  if (flow.deadline() == 0) return;
  flow_timers_.wake(flow.timer, flow.deadline());
  set_deadline(flow.deadline());
}

void ProgressContext::run_flow_timers() noexcept {
  while (Flow* flow = flow_timers_.pop_due(now_)) {
    if (const std::size_t freed = flow->on_timer(now_); freed > 0) soft::give_back(*this, *flow, freed);
    if (flow->deadline() != 0) flow_timers_.wake(flow->timer, std::max(flow->deadline(), now_ + 1));
  }
  if (const Nanos next = flow_timers_.next(); next != 0) set_deadline(next);
}

}  // namespace fairlead::soft
