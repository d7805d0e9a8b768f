// A shared receive queue: receive requests that any of its queue pairs takes, in order, with a message's first packet.
//
// Owned by whoever created it, through ibv_destroy_srq; queue pairs attached to it keep it from being destroyed.
// Threads: posting under the queue's mutex, the rest under the domain's lock.
// Source: IBTA volume 1, 10.2.9 (shared receive queues), 11.5.2 (their events).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "verbs/soft/memory/mr_table.h"
#include "verbs/soft/queues/work_queue.h"

namespace fairlead::soft {

class DeviceBase;

class Srq : public ibv_srq {
 public:
  Srq(DeviceBase& device, Pd& pd, const ibv_srq_init_attr& init, std::uint32_t number);
  ~Srq();

  /// The next request; false when there is none.
  [[nodiscard]] bool take(CurrentReceive& to) noexcept;
  /// ibv_modify_srq and ibv_query_srq. 0 or an errno. Take both locks.
  int modify(const ibv_srq_attr& attr, int mask);
  void query(ibv_srq_attr& attr);

  DeviceBase& device;
  Pd& pd_ref;  // whose memory its requests name, whatever the queue pair's is
  const std::uint32_t number;
  WorkQueue<RecvWqe> queue;
  int users = 0;                      // queue pairs attached; under the domain's lock
  std::uint32_t async_delivered = 0;  // under ibv_srq::mutex

 private:
  void look_at_limit() noexcept;

  Pd& owner_;                // the domain, or parent domain, that it was created with
  std::uint32_t limit_ = 0;  // fewer requests than this raise an event, once
};

[[nodiscard]] inline Srq& impl(ibv_srq* srq) noexcept { return static_cast<Srq&>(*srq); }

}  // namespace fairlead::soft
