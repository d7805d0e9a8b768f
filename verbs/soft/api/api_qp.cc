// Verbs on queue pairs.
#include "verbs/soft/api/api.h"
#include "verbs/soft/api/objects.h"
#include "verbs/soft/observe/refuse.h"
#include "verbs/soft/qp/qp_ex.h"

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

bool legal_queues(const ibv_context* context, const ibv_qp_init_attr& init) {
  if (init.send_cq != nullptr && init.recv_cq != nullptr && init.send_cq->context == context &&
      init.recv_cq->context == context) {
    return true;
  }
  refuse(EINVAL, "ibv_create_qp: send_cq and recv_cq must be of the protection domain's context");
  return false;
}

// A queue pair that starts anew, or a new one, must not be taken for the one that was (IBTA 11.2.5.2, 11.2.5.4).
void forget_completions(Qp& qp) noexcept {
  qp.send_completions.forget(qp.number());
  if (&qp.recv_completions != &qp.send_completions) qp.recv_completions.forget(qp.number());
}

}  // namespace

ibv_qp* create_qp(ibv_pd* base, ibv_qp_init_attr* init) {
  Device& device = impl(base->context);
  const bool known = init->qp_type == IBV_QPT_RC || init->qp_type == IBV_QPT_UD ||
                     (init->qp_type == IBV_QPT_UC && device.profile() == Profile::kFull);
  if (!known) {
    return refuse(EOPNOTSUPP, fmt::format("ibv_create_qp: queue pair type {} is not supported; this device has {}",
                                          static_cast<int>(init->qp_type),
                                          device.profile() == Profile::kFull ? "RC, UC and UD" : "RC and UD"));
  }
  if (init->srq != nullptr && init->srq->context != base->context) {
    return refuse(EINVAL, "ibv_create_qp: the shared receive queue is of another context");
  }
  ibv_qp_init_attr wanted = *init;
  if (wanted.srq != nullptr) wanted.cap.max_recv_wr = wanted.cap.max_recv_sge = 0;  // ignored, as the man page has it
  if (!legal_queues(base->context, wanted) || !within_limits(device, wanted)) return nullptr;
  Domain& domain = device.domain();
  Qp* qp = make_or_errno("ibv_create_qp", [&]() -> Qp* {
    device.watch();
    const DomainLock lock(domain);
    auto made = std::make_unique<Qp>(device, domain, impl(base), wanted);
    if (!domain.put(*made)) return refuse(ENOMEM, "ibv_create_qp: all queue pairs of the device are in use");
    return made.release();
  });
  if (qp == nullptr) return nullptr;
  device.retain();
  init->cap = {qp->sq.capacity(), qp->rq.capacity(), qp->sq.max_segments(), qp->rq.max_segments(), qp->sq.max_inline()};
  return &qp->qp_base;
}

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* init) {
  constexpr std::uint32_t kKnown = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
                                   IBV_QP_INIT_ATTR_MAX_TSO_HEADER | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  const auto given = [init](std::uint32_t bit) { return (init->comp_mask & bit) != 0; };
  if ((init->comp_mask & ~kKnown) != 0) {
    return refuse(EOPNOTSUPP, fmt::format("ibv_create_qp_ex: comp_mask {:#x} is not supported (XRC, receive-side "
                                          "scaling and source QPNs are absent)",
                                          init->comp_mask & ~kKnown));
  }
  if (!given(IBV_QP_INIT_ATTR_PD) || init->pd == nullptr || init->pd->context != context) {
    return refuse(EINVAL, "ibv_create_qp_ex: pd must be given and of this context");
  }
  if (given(IBV_QP_INIT_ATTR_CREATE_FLAGS) && init->create_flags != 0) {
    return refuse(EOPNOTSUPP,
                  fmt::format("ibv_create_qp_ex: create_flags {:#x}; only 0 is supported", init->create_flags));
  }
  if (given(IBV_QP_INIT_ATTR_MAX_TSO_HEADER) && init->max_tso_header != 0) {
    return refuse(EOPNOTSUPP, "ibv_create_qp_ex: max_tso_header; segmentation is not supported");
  }
  const std::uint64_t ops = given(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) ? init->send_ops_flags : 0;
  const std::uint64_t unknown = ops & ~supported_send_ops(init->qp_type, impl(context).profile());
  if (unknown != 0) {
    return refuse(EOPNOTSUPP,
                  fmt::format("ibv_create_qp_ex: send_ops_flags {:#x} are not supported by this type", unknown));
  }
  // ibv_qp_init_attr is the beginning of ibv_qp_init_attr_ex.
  ibv_qp* qp = create_qp(init->pd, reinterpret_cast<ibv_qp_init_attr*>(init));
  if (qp != nullptr && given(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)) set_send_ops(impl(qp));
  return qp;
}

ibv_qp_ex* qp_to_qp_ex(ibv_qp* base) {
  Qp& qp = impl(base);
  return has_send_ops(qp) ? &qp : nullptr;
}

int modify_qp(ibv_qp* base, ibv_qp_attr* attr, int mask) {
  Qp& qp = impl(base);
  const int error = qp.modify(*attr, mask);
  if (error == 0 && (mask & IBV_QP_STATE) != 0 && attr->qp_state == IBV_QPS_RESET) forget_completions(qp);
  return error;
}

// Of a message only the last byte is sure to be written last.
int query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, std::uint32_t) { return 0; }

int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int, ibv_qp_init_attr* init) {
  impl(qp).query(*attr, *init);
  return 0;
}

int destroy_qp(ibv_qp* base) {
  Qp& qp = impl(base);
  Device& device = impl(base->context);
  {
    const DomainLock lock(device.domain());
    device.domain().remove(qp);
  }
  forget_completions(qp);
  qp.device.async_events().remove_if([base](const ibv_async_event& event) {
    return subject_of(event.event_type) == AsyncSubject::kQp && event.element.qp == base;
  });
  if (qp.device.async_events().is_mine()) {
    ::pthread_mutex_lock(&(base->mutex));
    while (base->events_completed != qp.async_delivered) ::pthread_cond_wait(&(base->cond), &(base->mutex));
    ::pthread_mutex_unlock(&(base->mutex));
  }
  {
    const DomainLock lock(device.domain());
    delete &qp;
  }
  device.release();
  return 0;
}

}  // namespace fairlead::soft::api
