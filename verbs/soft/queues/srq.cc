#include "verbs/soft/queues/srq.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <new>

#include "verbs/soft/observe/refuse.h"
#include "verbs/soft/progress/context.h"
#include "verbs/soft/queues/device_base.h"

namespace fairlead::soft {

Srq::Srq(DeviceBase& owner, Pd& protection, const ibv_srq_init_attr& init, std::uint32_t its_number)
    : ibv_srq{},
      device(owner),
      pd_ref(protection.root()),
      number(its_number),
      queue(init.attr.max_wr, std::max(1U, init.attr.max_sge), 0),
      owner_(protection) {
  ibv_srq::context = &owner.context;
  ibv_srq::srq_context = init.srq_context;
  ibv_srq::pd = &protection;
  ::pthread_mutex_init(&(ibv_srq::mutex), nullptr);
  ::pthread_cond_init(&(ibv_srq::cond), nullptr);
  ++owner_.users;
}

Srq::~Srq() {
  --owner_.users;
  ::pthread_cond_destroy(&(ibv_srq::cond));
  ::pthread_mutex_destroy(&(ibv_srq::mutex));
}

bool Srq::take(CurrentReceive& to) noexcept {
  if (queue.empty()) return false;
  to.take(queue, pd_ref);
  look_at_limit();
  return true;
}

void Srq::look_at_limit() noexcept {
  if (limit_ == 0 || queue.tail() - queue.head() >= limit_) return;
  limit_ = 0;
  device.async_events().push({.element = {.srq = this}, .event_type = IBV_EVENT_SRQ_LIMIT_REACHED});
}

int Srq::modify(const ibv_srq_attr& attr, int mask) {
  const std::lock_guard posters(queue.mutex);
  const DomainLock lock(device.progress());
  const bool resizes = (mask & IBV_SRQ_MAX_WR) != 0;
  const std::uint32_t capacity = resizes ? attr.max_wr : queue.capacity();
  if ((mask & IBV_SRQ_LIMIT) != 0 && attr.srq_limit > capacity) {
    return refuse_with(
        EINVAL, fmt::format("ibv_modify_srq: srq_limit {} exceeds the queue's {} requests", attr.srq_limit, capacity));
  }
  if (resizes) {
    if (attr.max_wr == 0 || attr.max_wr > kMaxQueuePairWrs || attr.max_wr < queue.tail() - queue.head()) {
      return refuse_with(EINVAL, fmt::format("ibv_modify_srq: max_wr {}; legal: {}..{}", attr.max_wr,
                                             std::max(1U, queue.tail() - queue.head()), kMaxQueuePairWrs));
    }
    try {
      queue.resize(attr.max_wr);
    } catch (const std::bad_alloc&) {
      return refuse_with(ENOMEM, "ibv_modify_srq: out of memory");
    }
  }
  if ((mask & IBV_SRQ_LIMIT) != 0) {
    limit_ = attr.srq_limit;
    look_at_limit();  // of an empty queue nothing will be taken, and nobody else say so
  }
  return 0;
}

void Srq::query(ibv_srq_attr& attr) {
  const std::lock_guard posters(queue.mutex);
  const DomainLock lock(device.progress());
  attr = {queue.capacity(), queue.max_segments(), limit_};
}

}  // namespace fairlead::soft
