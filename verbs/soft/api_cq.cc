// Verbs on completion queues and channels.
#include "verbs/soft/api.h"
#include "verbs/soft/objects.h"
#include "verbs/soft/refuse.h"

namespace fairlead::soft::api {

ibv_comp_channel* create_comp_channel(ibv_context* context) {
  CompChannel* channel = make_or_errno("ibv_create_comp_channel", [&] { return new CompChannel(context); });
  if (channel != nullptr) ++impl(context).objects;
  return channel;
}

int destroy_comp_channel(ibv_comp_channel* channel) {
  if (channel->refcnt != 0) return EBUSY;
  --impl(channel->context).objects;
  delete &impl(channel);
  return 0;
}

ibv_cq* create_cq(ibv_context* context, int cqe, void* user, ibv_comp_channel* channel, int comp_vector) {
  if (cqe < 1 || cqe > kMaxCompletions) {
    return refuse(EINVAL, fmt::format("ibv_create_cq: {} entries; legal: 1..{}", cqe, kMaxCompletions));
  }
  if (comp_vector < 0 || comp_vector >= context->num_comp_vectors) {
    return refuse(
        EINVAL, fmt::format("ibv_create_cq: comp_vector {}; legal: 0..{}", comp_vector, context->num_comp_vectors - 1));
  }
  Cq* cq = make_or_errno("ibv_create_cq",
                         [&] { return new Cq(impl(context), cqe, user, static_cast<CompChannel*>(channel)); });
  if (cq == nullptr) return nullptr;
  ++impl(context).objects;
  if (channel != nullptr) __atomic_fetch_add(&channel->refcnt, 1, __ATOMIC_RELAXED);
  return ibv_cq_ex_to_cq(cq);
}

int destroy_cq(ibv_cq* base) {
  Cq& cq = impl(base);
  if (cq.users.load() != 0) return EBUSY;
  cq.settle_events();
  if (cq.channel != nullptr) __atomic_fetch_sub(&cq.channel->refcnt, 1, __ATOMIC_RELAXED);
  --impl(cq.context).objects;
  delete &cq;
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
  cq.device().domain().poll();
  return cq.pop(count, completions);
}

int req_notify_cq(ibv_cq* cq, int solicited_only) {
  impl(cq).arm(solicited_only != 0);
  return 0;
}

}  // namespace fairlead::soft::api
