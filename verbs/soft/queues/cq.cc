#include "verbs/soft/queues/cq.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <ctime>

#include "verbs/soft/progress/context.h"
#include "verbs/soft/queues/device_base.h"

namespace fairlead::soft {

Cq::Cq(DeviceBase& owner, int entries, void* user, CompChannel* comp_channel, const CqOptions& options)
    : ibv_cq_ex{}, device_(owner), options_(options), channel_(comp_channel) {
  const auto size = std::bit_ceil(static_cast<std::uint32_t>(entries));
  mask_ = size - 1;
  limit_ = size;
  ring_.resize(size);
  if (options_.timestamps || options_.wallclock) times_.resize(size);
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
    if (options_.ignore_overrun) return true;
    overflowed_.store(true);
    return false;
  }
  ring_[tail & mask_] = completion;
  if (!times_.empty()) stamp(times_[tail & mask_]);
  tail_.store(tail + 1, std::memory_order_release);
  if (channel_ != nullptr) raise_event(solicited || completion.status != IBV_WC_SUCCESS);
  return true;
}

void Cq::stamp(Times& times) const noexcept {
  times.device = device_.progress().clock().now();
  if (!options_.wallclock) return;
  timespec time;
  ::clock_gettime(CLOCK_REALTIME, &time);
  times.wall = static_cast<Nanos>(time.tv_sec) * kSecond + static_cast<Nanos>(time.tv_nsec);
}

void Cq::raise_event(bool solicited) noexcept {
  // A read-modify-write, so that it and arm()'s exchange see each other: either this sees the arming, or the poll that
  // must follow arming sees the completion.
  const int wanted = armed_.fetch_or(0);
  if (wanted != kAny && (wanted != kSolicited || !solicited)) return;
  if (armed_.exchange(kUnarmed) == kUnarmed) return;
  device_.progress().count_armed(-1);
  channel_->queue.push(ibv_cq_ex_to_cq(this));
}

int Cq::pop(int count, ibv_wc* to) noexcept {
  if (empty()) return overflowed_.load(std::memory_order_relaxed) ? -EOVERFLOW : 0;
  lock_consumer();
  const std::uint32_t head = head_.load(std::memory_order_relaxed);
  const std::uint32_t ready = tail_.load(std::memory_order_acquire) - head;
  const std::uint32_t taken = std::min(ready, static_cast<std::uint32_t>(std::max(count, 0)));
  for (std::uint32_t i = 0; i < taken; ++i) to[i] = ring_[(head + i) & mask_];
  head_.store(head + taken, std::memory_order_release);
  unlock_consumer();
  if (ready == 0 && overflowed_.load(std::memory_order_relaxed)) return -EOVERFLOW;
  return static_cast<int>(taken);
}

bool Cq::resize(int entries) {
  const auto size = std::bit_ceil(static_cast<std::uint32_t>(entries));
  std::vector<ibv_wc> ring(size);
  std::vector<Times> times(times_.empty() ? 0 : size);
  std::unique_lock pollers(consumer_, std::defer_lock);
  if (poller_.load(std::memory_order_relaxed) != std::this_thread::get_id()) pollers.lock();
  const DomainLock lock(device_.progress());
  device_.progress().progress();  // what was posted before may still ring, and its completions count
  const std::uint32_t head = head_.load();
  const std::uint32_t tail = tail_.load();
  if (tail - head > static_cast<std::uint32_t>(entries)) return false;
  for (std::uint32_t i = head; i != tail; ++i) {
    ring[i & (size - 1)] = ring_[i & mask_];
    if (!times.empty()) times[i & (size - 1)] = times_[i & mask_];
  }
  ring_.swap(ring);
  times_.swap(times);
  mask_ = size - 1;
  limit_ = size;
  ibv_cq_ex::cqe = static_cast<int>(size);
  return true;
}

void Cq::forget(std::uint32_t qp_num) noexcept {
  if (!device_.async_events().is_mine()) return;  // a poller of the parent's may have the lock
  const bool has_lock = poller_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  if (!has_lock) lock_consumer();
  {
    const DomainLock lock(device_.progress());
    const bool shows = poller_.load(std::memory_order_relaxed) != std::thread::id();
    const std::uint32_t tail = tail_.load();
    std::uint32_t kept = head_.load() + (shows ? 1 : 0);  // what is shown stays in its place, and end() takes it
    for (std::uint32_t i = kept; i != tail; ++i) {
      if (ring_[i & mask_].qp_num == qp_num) continue;
      ring_[kept & mask_] = ring_[i & mask_];
      if (!times_.empty()) times_[kept & mask_] = times_[i & mask_];
      ++kept;
    }
    tail_.store(kept, std::memory_order_release);
  }
  if (!has_lock) unlock_consumer();
}

void Cq::show() noexcept {
  const ibv_wc& completion = shown();
  ibv_cq_ex::status = completion.status;
  ibv_cq_ex::wr_id = completion.wr_id;
}

int Cq::begin() noexcept {
  lock_consumer();
  shown_ = head_.load(std::memory_order_relaxed);
  if (shown_ == tail_.load(std::memory_order_acquire)) {
    unlock_consumer();
    return overflowed_.load(std::memory_order_relaxed) ? EOVERFLOW : ENOENT;
  }
  poller_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  show();
  return 0;
}

int Cq::next() noexcept {
  // Past the end the last completion stays shown, and end() takes it.
  if (shown_ + 1 == tail_.load(std::memory_order_acquire)) return ENOENT;
  head_.store(++shown_, std::memory_order_release);
  show();
  return 0;
}

void Cq::end() noexcept {
  poller_.store({}, std::memory_order_relaxed);
  head_.store(shown_ + 1, std::memory_order_release);
  unlock_consumer();
}

void Cq::arm(bool solicited_only) noexcept {
  if (channel_ == nullptr) return;
  int before = armed_.load();
  // Arming for any completion wins over arming for solicited ones.
  while (!armed_.compare_exchange_weak(before, solicited_only && before != kAny ? kSolicited : kAny)) {
  }
  if (before == kUnarmed) device_.progress().count_armed(+1);
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
  if (armed_.exchange(kUnarmed) != kUnarmed) device_.progress().count_armed(-1);
  if (channel_ != nullptr) channel_->queue.remove_if([this](ibv_cq* cq) { return cq == ibv_cq_ex_to_cq(this); });
  device_.async_events().remove_if([this](const ibv_async_event& event) {
    return subject_of(event.event_type) == AsyncSubject::kCq && event.element.cq == ibv_cq_ex_to_cq(this);
  });
  if (!device_.async_events().is_mine()) return;
  ::pthread_mutex_lock(&(ibv_cq_ex::mutex));
  while (comp_events_completed != delivered_ || async_events_completed != async_delivered_) {
    ::pthread_cond_wait(&(ibv_cq_ex::cond), &(ibv_cq_ex::mutex));
  }
  ::pthread_mutex_unlock(&(ibv_cq_ex::mutex));
}

}  // namespace fairlead::soft
