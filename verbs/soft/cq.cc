#include "verbs/soft/cq.h"

#include <algorithm>
#include <bit>
#include <cerrno>

#include "verbs/soft/device.h"

namespace fairlead::soft {

Cq::Cq(Device& owner, int entries, void* user, CompChannel* comp_channel)
    : ibv_cq_ex{}, device_(owner), channel_(comp_channel) {
  const auto size = std::bit_ceil(static_cast<std::uint32_t>(entries));
  mask_ = size - 1;
  limit_ = size;
  ring_ = std::make_unique<ibv_wc[]>(size);
  ibv_cq_ex::context = &owner.context;
  ibv_cq_ex::channel = comp_channel;
  ibv_cq_ex::cq_context = user;
  ibv_cq_ex::cqe = static_cast<int>(size);
  ::pthread_mutex_init(&(ibv_cq_ex::mutex), nullptr);
  ::pthread_cond_init(&(ibv_cq_ex::cond), nullptr);
}

Cq::~Cq() {
  ::pthread_cond_destroy(&(ibv_cq_ex::cond));
  ::pthread_mutex_destroy(&(ibv_cq_ex::mutex));
}

bool Cq::push(const ibv_wc& completion, bool solicited) noexcept {
  const std::uint32_t tail = tail_.load(std::memory_order_relaxed);
  if (tail - head_.load(std::memory_order_acquire) == limit_) {
    overflowed_.store(true);
    return false;
  }
  ring_[tail & mask_] = completion;
  tail_.store(tail + 1, std::memory_order_release);
  if (channel_ == nullptr) return true;
  // A read-modify-write, so that it and arm()'s exchange see each other: either this sees the arming, or the poll that
  // must follow arming sees the completion.
  int wanted = armed_.fetch_or(0);
  const bool counts = solicited || completion.status != IBV_WC_SUCCESS;
  if (wanted == kAny || (wanted == kSolicited && counts)) {
    if (armed_.exchange(kUnarmed) != kUnarmed) {
      device_.domain().count_armed(-1);
      channel_->queue.push(ibv_cq_ex_to_cq(this));
    }
  }
  return true;
}

int Cq::pop(int count, ibv_wc* to) noexcept {
  const std::lock_guard lock(consumer_);
  const std::uint32_t head = head_.load(std::memory_order_relaxed);
  const std::uint32_t ready = tail_.load(std::memory_order_acquire) - head;
  if (ready == 0) return overflowed_.load(std::memory_order_relaxed) ? -EOVERFLOW : 0;
  const std::uint32_t taken = std::min(ready, static_cast<std::uint32_t>(std::max(count, 0)));
  for (std::uint32_t i = 0; i < taken; ++i) to[i] = ring_[(head + i) & mask_];
  head_.store(head + taken, std::memory_order_release);
  return static_cast<int>(taken);
}

void Cq::arm(bool solicited_only) noexcept {
  if (channel_ == nullptr) return;
  int before = armed_.load();
  // Arming for any completion wins over arming for solicited ones.
  while (!armed_.compare_exchange_weak(before, solicited_only && before != kAny ? kSolicited : kAny)) {
  }
  if (before == kUnarmed) device_.domain().count_armed(+1);
}

void Cq::count_delivered() noexcept {
  ::pthread_mutex_lock(&(ibv_cq_ex::mutex));
  ++delivered_;
  ::pthread_mutex_unlock(&(ibv_cq_ex::mutex));
}

void Cq::count_async_delivered() noexcept {
  ::pthread_mutex_lock(&(ibv_cq_ex::mutex));
  ++async_delivered_;
  ::pthread_mutex_unlock(&(ibv_cq_ex::mutex));
}

void Cq::settle_events() {
  if (armed_.exchange(kUnarmed) != kUnarmed) device_.domain().count_armed(-1);
  if (channel_ != nullptr) channel_->queue.remove_if([this](ibv_cq* cq) { return cq == ibv_cq_ex_to_cq(this); });
  device_.async_events().remove_if([this](const ibv_async_event& event) {
    return event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == ibv_cq_ex_to_cq(this);
  });
  ::pthread_mutex_lock(&(ibv_cq_ex::mutex));
  while (comp_events_completed != delivered_ || async_events_completed != async_delivered_) {
    ::pthread_cond_wait(&(ibv_cq_ex::cond), &(ibv_cq_ex::mutex));
  }
  ::pthread_mutex_unlock(&(ibv_cq_ex::mutex));
}

}  // namespace fairlead::soft
