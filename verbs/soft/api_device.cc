// Verbs on an open device.
#include <algorithm>
#include <cstring>

#include "verbs/soft/api.h"
#include "verbs/soft/objects.h"
#include "verbs/soft/refuse.h"

namespace fairlead::soft::api {
namespace {

bool about_cq(const ibv_async_event& event) noexcept { return event.event_type == IBV_EVENT_CQ_ERR; }

}  // namespace

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

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attr,
                    std::size_t size) {
  if (input != nullptr && input->comp_mask != 0) return EINVAL;
  ibv_device_attr_ex all{};
  impl(context).describe(all);
  std::memcpy(attr, &all, std::min(size, sizeof(all)));  // the caller may know fewer attributes
  return 0;
}

int query_rt_values(ibv_context* context, ibv_values_ex* values) {
  if ((values->comp_mask & ~std::uint32_t{IBV_VALUES_MASK_RAW_CLOCK}) != 0) return EINVAL;
  if (values->comp_mask == 0) return 0;
  // In cycles of hca_core_clock, all in tv_nsec, as mlx5 has it.
  values->raw_clock = {0, static_cast<long>(impl(context).domain().clock().now())};
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

int query_pkey(ibv_context*, std::uint8_t port, int index, std::uint16_t* pkey) {
  if (port != 1 || index != 0) {
    errno = EINVAL;
    return -1;
  }
  *pkey = 0xffff;
  return 0;
}

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

}  // namespace fairlead::soft::api
