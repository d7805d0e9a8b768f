// Verbs on shared receive queues.
#include "verbs/soft/api/api.h"
#include "verbs/soft/api/objects.h"
#include "verbs/soft/observe/refuse.h"

namespace fairlead::soft::api {

ibv_srq* create_srq(ibv_pd* base, ibv_srq_init_attr* init) {
  const ibv_srq_attr& wanted = init->attr;
  if (wanted.max_wr == 0 || wanted.max_wr > kMaxQueuePairWrs || wanted.max_sge > kMaxSegments) {
    return refuse(EINVAL, fmt::format("ibv_create_srq: max_wr {}, max_sge {}; legal: 1..{}, 0..{}", wanted.max_wr,
                                      wanted.max_sge, kMaxQueuePairWrs, kMaxSegments));
  }
  Device& device = impl(base->context);
  Srq* srq = make_or_errno("ibv_create_srq", [&] {
    const DomainLock lock(device.domain());
    return new Srq(device, impl(base), *init, ++device.srqs_made);
  });
  if (srq == nullptr) return nullptr;
  device.retain();
  init->attr = {srq->queue.capacity(), srq->queue.max_segments(), 0};
  return srq;
}

ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* init) {
  const auto given = [init](std::uint32_t bit) { return (init->comp_mask & bit) != 0; };
  const ibv_srq_type type = given(IBV_SRQ_INIT_ATTR_TYPE) ? init->srq_type : IBV_SRQT_BASIC;
  if (type == IBV_SRQT_XRC || given(IBV_SRQ_INIT_ATTR_XRCD)) {
    return refuse(EOPNOTSUPP, "ibv_create_srq_ex: the extended reliable connected transport (XRC) is not supported");
  }
  if (type != IBV_SRQT_BASIC || given(IBV_SRQ_INIT_ATTR_TM)) {
    return refuse(EOPNOTSUPP, "ibv_create_srq_ex: tag matching is not supported; use a basic shared receive queue");
  }
  if (!given(IBV_SRQ_INIT_ATTR_PD) || init->pd == nullptr || init->pd->context != context) {
    return refuse(EINVAL, "ibv_create_srq_ex: pd must be given and of this context");
  }
  // ibv_srq_init_attr is the beginning of ibv_srq_init_attr_ex.
  return create_srq(init->pd, reinterpret_cast<ibv_srq_init_attr*>(init));
}

int modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
  if ((mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0) return EINVAL;
  return impl(srq).modify(*attr, mask);
}

int query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
  impl(srq).query(*attr);
  return 0;
}

int get_srq_num(ibv_srq* srq, std::uint32_t* number) {
  *number = impl(srq).number;
  return 0;
}

int destroy_srq(ibv_srq* base) {
  Srq& srq = impl(base);
  {
    const DomainLock lock(srq.device.progress());
    if (srq.users != 0) return EBUSY;
  }
  srq.device.async_events().remove_if([base](const ibv_async_event& event) {
    return subject_of(event.event_type) == AsyncSubject::kSrq && event.element.srq == base;
  });
  if (srq.device.async_events().is_mine()) {
    ::pthread_mutex_lock(&(base->mutex));
    while (base->events_completed != srq.async_delivered) ::pthread_cond_wait(&(base->cond), &(base->mutex));
    ::pthread_mutex_unlock(&(base->mutex));
  }
  Device& device = impl(base->context);
  {
    const DomainLock lock(device.domain());
    delete &srq;
  }
  device.release();
  return 0;
}

}  // namespace fairlead::soft::api
