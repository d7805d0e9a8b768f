#include "verbs/soft/control_path.h"

#include <fmt/format.h>

#include <cerrno>
#include <memory>
#include <new>
#include <system_error>

#include "fairlead/log.h"
#include "verbs/soft/cq.h"
#include "verbs/soft/device.h"

namespace fairlead::soft {
namespace {

Device& impl(ibv_context* context) noexcept { return static_cast<Device&>(*context); }
Cq& impl(ibv_cq* cq) noexcept { return static_cast<Cq&>(*cq); }
Qp& impl(ibv_qp* qp) noexcept { return static_cast<Qp&>(*qp); }

// A refusal is often the answer to a question (how much inline data?), so it is no error of itself.
std::nullptr_t refuse(int error, std::string_view what) {
  log(LogLevel::kInfo, fmt::format("softroce: {}", what));
  errno = error;
  return nullptr;
}

int close_device(ibv_context* context) {
  Device& device = impl(context);
  if (device.objects.load() != 0) return errno = EBUSY;  // queue pairs and regions need a protection domain
  delete &device;
  return 0;
}

int query_device(ibv_context* context, ibv_device_attr* attr) {
  impl(context).describe(*attr);
  return 0;
}

int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attr) {
  if (port != 1) return EINVAL;
  impl(context).describe(*attr);
  return 0;
}

int query_gid(ibv_context* context, std::uint8_t port, int index, ibv_gid* gid) {
  if (port != 1 || index < 0 || index >= kGidTableLength) {
    errno = EINVAL;
    return -1;
  }
  *gid = impl(context).gid(static_cast<std::uint32_t>(index)).gid;
  return 0;
}

int query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index, ibv_gid_entry* entry) {
  if (port != 1 || index >= kGidTableLength) return EINVAL;
  *entry = impl(context).gid(index);
  return Gid::from_verbs(entry->gid).is_null() ? ENODATA : 0;
}

// Out of memory or threads is an errno, not an exception through a C interface.
template <typename Make>
auto make_or_errno(Device& device, Make&& make) -> decltype(make()) {
  try {
    auto* made = make();
    if (made != nullptr) ++device.objects;
    return made;
  } catch (const std::bad_alloc&) {
    return refuse(ENOMEM, "out of memory");
  } catch (const std::system_error& error) {
    return refuse(error.code().value(), error.what());
  }
}

ibv_pd* alloc_pd(ibv_context* context) {
  return make_or_errno(impl(context), [&] { return new Pd(context); });
}

int dealloc_pd(ibv_pd* base) {
  Pd* pd = static_cast<Pd*>(base);
  {
    const DomainLock lock(impl(pd->context).domain());
    if (pd->users != 0) return EBUSY;
  }
  --impl(pd->context).objects;
  delete pd;
  return 0;
}

ibv_mr* reg_mr(ibv_pd* base, void* address, std::size_t length, int access) {
  constexpr int kKnown = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                         IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_HUGETLB;
  if ((access & ~kKnown) != 0) {
    return refuse(EOPNOTSUPP, fmt::format("ibv_reg_mr: access flags {:#x} are not supported; use local write, remote "
                                          "write and remote read",
                                          static_cast<unsigned>(access & ~kKnown)));
  }
  // IBTA 10.6.3.1: a peer may write only what the owner may.
  if ((access & IBV_ACCESS_REMOTE_WRITE) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0) {
    return refuse(EINVAL, "ibv_reg_mr: remote write access requires local write access");
  }
  if (reinterpret_cast<std::uintptr_t>(address) + length < length) {
    return refuse(EINVAL, fmt::format("ibv_reg_mr: {} bytes at {} wrap around the address space", length, address));
  }
  Domain& domain = impl(base->context).domain();
  const DomainLock lock(domain);
  Mr* region = nullptr;
  try {
    region = domain.regions.add(static_cast<Pd&>(*base), address, length, static_cast<unsigned>(access));
  } catch (const std::bad_alloc&) {
    return refuse(ENOMEM, "ibv_reg_mr: out of memory");
  }
  if (region == nullptr) {
    return refuse(ENOMEM, fmt::format("ibv_reg_mr: all {} memory regions are in use; register larger ranges",
                                      MrTable::kMaxRegions));
  }
  return region;
}

int dereg_mr(ibv_mr* region) {
  Domain& domain = impl(region->context).domain();
  const DomainLock lock(domain);
  domain.regions.remove(static_cast<Mr*>(region));
  return 0;
}

ibv_comp_channel* create_comp_channel(ibv_context* context) {
  return make_or_errno(impl(context), [&] { return new CompChannel(context); });
}

int destroy_comp_channel(ibv_comp_channel* channel) {
  if (channel->refcnt != 0) return EBUSY;
  --impl(channel->context).objects;
  delete static_cast<CompChannel*>(channel);
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
  auto* cq = make_or_errno(impl(context),
                           [&] { return new Cq(impl(context), cqe, user, static_cast<CompChannel*>(channel)); });
  if (cq != nullptr && channel != nullptr) __atomic_fetch_add(&channel->refcnt, 1, __ATOMIC_RELAXED);
  return cq;
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
  if (!static_cast<CompChannel*>(channel)->queue.pop(*cq, [](ibv_cq* taken) { impl(taken).count_delivered(); })) {
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
  auto* qp = make_or_errno(device, [&] {
    device.watch();
    const DomainLock lock(domain);
    auto made = std::make_unique<Qp>(device, static_cast<Pd&>(*base), *init);
    return domain.put(*made) ? made.release() : nullptr;
  });
  if (qp == nullptr) return refuse(ENOMEM, "ibv_create_qp: no memory, or all queue pairs of the device are in use");
  init->cap = {qp->sq.capacity(), qp->rq.capacity(), qp->sq.max_segments(), qp->rq.max_segments(), qp->sq.max_inline()};
  return qp;
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
  qp.device.async_events().remove_if(
      [&qp](const ibv_async_event& event) { return event.event_type != IBV_EVENT_CQ_ERR && event.element.qp == &qp; });
  ::pthread_mutex_lock(&(base->mutex));
  while (qp.events_completed != qp.async_delivered) ::pthread_cond_wait(&(base->cond), &(base->mutex));
  ::pthread_mutex_unlock(&(base->mutex));
  --qp.device.objects;
  const DomainLock lock(qp.domain);
  delete &qp;
  return 0;
}

bool about_cq(const ibv_async_event& event) noexcept { return event.event_type == IBV_EVENT_CQ_ERR; }

int get_async_event(ibv_context* context, ibv_async_event* event) {
  const auto count = [](const ibv_async_event& taken) {
    if (about_cq(taken)) return impl(taken.element.cq).count_async_delivered();
    ibv_qp* qp = taken.element.qp;
    ::pthread_mutex_lock(&qp->mutex);
    ++impl(qp).async_delivered;
    ::pthread_mutex_unlock(&qp->mutex);
  };
  return impl(context).async_events().pop(*event, count) ? 0 : -1;
}

void ack_async_event(ibv_async_event* event) {
  if (about_cq(*event)) {
    ibv_cq* cq = event->element.cq;
    ::pthread_mutex_lock(&cq->mutex);
    ++cq->async_events_completed;
    ::pthread_cond_broadcast(&cq->cond);
    ::pthread_mutex_unlock(&cq->mutex);
  } else {
    ibv_qp* qp = event->element.qp;
    ::pthread_mutex_lock(&qp->mutex);
    ++qp->events_completed;
    ::pthread_cond_broadcast(&qp->cond);
    ::pthread_mutex_unlock(&qp->mutex);
  }
}

}  // namespace

void add_control_path(verbs::VerbsApi& api) noexcept {
  api.close_device = &close_device;
  api.query_device = &query_device;
  api.query_port = &query_port;
  api.query_gid = &query_gid;
  api.query_gid_ex = &query_gid_ex;
  api.alloc_pd = &alloc_pd;
  api.dealloc_pd = &dealloc_pd;
  api.reg_mr = &reg_mr;
  api.dereg_mr = &dereg_mr;
  api.create_comp_channel = &create_comp_channel;
  api.destroy_comp_channel = &destroy_comp_channel;
  api.create_cq = &create_cq;
  api.destroy_cq = &destroy_cq;
  api.modify_cq = nullptr;  // no moderation: an event is one eventfd write
  api.get_cq_event = &get_cq_event;
  api.ack_cq_events = &ack_cq_events;
  api.create_qp = &create_qp;
  api.modify_qp = &modify_qp;
  api.query_qp = &query_qp;
  api.destroy_qp = &destroy_qp;
  api.get_async_event = &get_async_event;
  api.ack_async_event = &ack_async_event;
}

}  // namespace fairlead::soft
