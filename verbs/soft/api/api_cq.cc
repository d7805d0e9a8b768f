// Verbs on completion queues and channels.
#include "verbs/soft/api/api.h"
#include "verbs/soft/api/objects.h"
#include "verbs/soft/observe/refuse.h"
#include "verbs/soft/queues/cq_ex.h"

namespace fairlead::soft::api {
namespace {

bool legal_size(std::string_view verb, std::int64_t cqe) {
  if (cqe >= 1 && cqe <= kMaxCompletions) return true;
  refuse(EINVAL, fmt::format("{}: {} entries; legal: 1..{}", verb, cqe, kMaxCompletions));
  return false;
}

Cq* make_cq(ibv_context* context, std::int64_t cqe, void* user, ibv_comp_channel* channel, std::int64_t comp_vector,
            const CqOptions& options) {
  if (!legal_size("ibv_create_cq", cqe)) return nullptr;
  if (comp_vector < 0 || comp_vector >= context->num_comp_vectors) {
    return refuse(
        EINVAL, fmt::format("ibv_create_cq: comp_vector {}; legal: 0..{}", comp_vector, context->num_comp_vectors - 1));
  }
  if (channel != nullptr && channel->context != context) {
    return refuse(EINVAL, "ibv_create_cq: the channel belongs to another context");
  }
  Cq* cq = make_or_errno("ibv_create_cq", [&] {
    return new Cq(impl(context), static_cast<int>(cqe), user, static_cast<CompChannel*>(channel), options);
  });
  if (cq == nullptr) return nullptr;
  impl(context).retain();
  if (channel != nullptr) __atomic_fetch_add(&channel->refcnt, 1, __ATOMIC_RELAXED);
  return cq;
}

}  // namespace

ibv_comp_channel* create_comp_channel(ibv_context* context) {
  CompChannel* channel = make_or_errno("ibv_create_comp_channel", [&] { return new CompChannel(context); });
  if (channel != nullptr) impl(context).retain();
  return channel;
}

int destroy_comp_channel(ibv_comp_channel* channel) {
  if (channel->refcnt != 0) return EBUSY;
  Device& device = impl(channel->context);
  delete &impl(channel);
  device.release();
  return 0;
}

ibv_cq* create_cq(ibv_context* context, int cqe, void* user, ibv_comp_channel* channel, int comp_vector) {
  Cq* cq = make_cq(context, cqe, user, channel, comp_vector, {});
  return cq != nullptr ? ibv_cq_ex_to_cq(cq) : nullptr;
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* init) {
  constexpr std::uint32_t kKnownFlags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  constexpr std::uint32_t kKnownMask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
  const std::uint32_t flags = (init->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 ? init->flags : 0;
  if ((init->comp_mask & ~kKnownMask) != 0 || (flags & ~kKnownFlags) != 0) {
    return refuse(EOPNOTSUPP, fmt::format("ibv_create_cq_ex: comp_mask {:#x}, flags {:#x}; known: {:#x}, {:#x}",
                                          init->comp_mask, flags, kKnownMask, kKnownFlags));
  }
  if ((init->wc_flags & ~kSupportedWcFlags) != 0) {
    return refuse(EOPNOTSUPP, fmt::format("ibv_create_cq_ex: wc_flags {:#x} are not supported (no VLANs, flow tags or "
                                          "tag matching)",
                                          init->wc_flags & ~kSupportedWcFlags));
  }
  const auto wants = [init](std::uint64_t flag) { return (init->wc_flags & flag) != 0; };
  const CqOptions options{.timestamps = wants(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP),
                          .wallclock = wants(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK),
                          .single_threaded = (flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0,
                          .ignore_overrun = (flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) != 0};
  Cq* cq = make_cq(context, init->cqe, init->cq_context, init->channel, init->comp_vector, options);
  if (cq != nullptr) set_poll_ops(*cq, init->wc_flags);
  return cq;
}

int resize_cq(ibv_cq* base, int cqe) {
  if (!legal_size("ibv_resize_cq", cqe)) return EINVAL;
  Cq& cq = impl(base);
  try {
    if (cq.resize(cqe)) return 0;
  } catch (const std::bad_alloc&) {
    return refuse_with(ENOMEM, "ibv_resize_cq: out of memory");
  }
  return refuse_with(EINVAL, fmt::format("ibv_resize_cq: {} entries do not hold the completions that wait", cqe));
}

int modify_cq(ibv_cq*, ibv_modify_cq_attr*) {
  return refuse_with(EOPNOTSUPP, "ibv_modify_cq: events are not moderated; one costs a write to an eventfd");
}

int destroy_cq(ibv_cq* base) {
  Cq& cq = impl(base);
  if (cq.users.load() != 0) return EBUSY;
  cq.settle_events();
  if (cq.channel != nullptr) __atomic_fetch_sub(&cq.channel->refcnt, 1, __ATOMIC_RELAXED);
  Device& device = impl(base->context);
  delete &cq;
  device.release();
  return 0;
}

int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** user) {
  if (!impl(channel).queue.pop(*cq, [](ibv_cq* taken) { impl(taken).count_delivered(); })) {
    return -1;
  }
  *user = (*cq)->cq_context;
  return 0;
}

void ack_cq_events(ibv_cq* cq, unsigned int count) {
  ::pthread_mutex_lock(&cq->mutex);
  cq->comp_events_completed += count;
  ::pthread_cond_broadcast(&cq->cond);
  ::pthread_mutex_unlock(&cq->mutex);
}

int poll_cq(ibv_cq* base, int count, ibv_wc* completions) {
  Cq& cq = impl(base);
  const int ready = cq.pop(count, completions);
  if (ready != 0) return ready;
  cq.device().progress().poll();
  return cq.pop(count, completions);
}

int req_notify_cq(ibv_cq* cq, int solicited_only) {
  impl(cq).arm(solicited_only != 0);
  return 0;
}

}  // namespace fairlead::soft::api
