// Verbs on queue pairs.
#include "verbs/soft/api.h"
#include "verbs/soft/objects.h"
#include "verbs/soft/refuse.h"

namespace fairlead::soft::api {
namespace {

bool within_limits(const Device& device, const ibv_qp_init_attr& init) {
  const ibv_qp_cap& cap = init.cap;
  const std::uint32_t max_inline = device.profile() == Profile::kFull ? kMaxInline : 0;
  const auto check = [](std::string_view what, std::uint32_t value, std::uint32_t limit) {
    if (value <= limit) return true;
    refuse(EINVAL, fmt::format("ibv_create_qp: {} is {}; this device takes at most {}", what, value, limit));
    return false;
  };
  return check("max_send_wr", cap.max_send_wr, kMaxQueuePairWrs) &&
         check("max_recv_wr", cap.max_recv_wr, kMaxQueuePairWrs) &&
         check("max_send_sge", cap.max_send_sge, kMaxSegments) &&
         check("max_recv_sge", cap.max_recv_sge, kMaxSegments) &&
         check("max_inline_data", cap.max_inline_data, max_inline);
}

}  // namespace

ibv_qp* create_qp(ibv_pd* base, ibv_qp_init_attr* init) {
  Device& device = impl(base->context);
  if (init->qp_type != IBV_QPT_RC) {
    return refuse(EOPNOTSUPP, fmt::format("ibv_create_qp: queue pair type {} is not supported; use RC",
                                          static_cast<int>(init->qp_type)));
  }
  if (init->srq != nullptr) return refuse(EOPNOTSUPP, "ibv_create_qp: shared receive queues are not supported");
  if (init->send_cq == nullptr || init->recv_cq == nullptr || init->send_cq->context != base->context ||
      init->recv_cq->context != base->context) {
    return refuse(EINVAL, "ibv_create_qp: send_cq and recv_cq must be of the protection domain's context");
  }
  if (!within_limits(device, *init)) return nullptr;
  Domain& domain = device.domain();
  Qp* qp = make_or_errno("ibv_create_qp", [&] {
    device.watch();
    const DomainLock lock(domain);
    auto made = std::make_unique<Qp>(device, impl(base), *init);
    return domain.put(*made) ? made.release() : nullptr;
  });
  if (qp == nullptr) return refuse(ENOMEM, "ibv_create_qp: no memory, or all queue pairs of the device are in use");
  ++device.objects;
  init->cap = {qp->sq.capacity(), qp->rq.capacity(), qp->sq.max_segments(), qp->rq.max_segments(), qp->sq.max_inline()};
  return &qp->qp_base;
}

int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) { return impl(qp).modify(*attr, mask); }

int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int, ibv_qp_init_attr* init) {
  impl(qp).query(*attr, *init);
  return 0;
}

int destroy_qp(ibv_qp* base) {
  Qp& qp = impl(base);
  {
    const DomainLock lock(qp.domain);
    qp.domain.remove(qp);
    qp.detach();
  }
  qp.device.async_events().remove_if([base](const ibv_async_event& event) {
    return event.event_type != IBV_EVENT_CQ_ERR && event.element.qp == base;
  });
  ::pthread_mutex_lock(&(base->mutex));
  while (base->events_completed != qp.async_delivered) ::pthread_cond_wait(&(base->cond), &(base->mutex));
  ::pthread_mutex_unlock(&(base->mutex));
  --qp.device.objects;
  const DomainLock lock(qp.domain);
  delete &qp;
  return 0;
}

}  // namespace fairlead::soft::api
