// Verbs on an open device.
#include <cstring>

#include "verbs/soft/api/api.h"
#include "verbs/soft/api/fill_known.h"
#include "verbs/soft/api/objects.h"
#include "verbs/soft/observe/refuse.h"

namespace fairlead::soft::api {
namespace {

template <typename Object>
void count_delivered(Object& object, std::uint32_t& count) noexcept {
  ::pthread_mutex_lock(&object.mutex);
  ++count;
  ::pthread_mutex_unlock(&object.mutex);
}

// Wakes who waits to destroy the object.
template <typename Object>
void acknowledge(Object& object, std::uint32_t& count) noexcept {
  ::pthread_mutex_lock(&object.mutex);
  ++count;
  ::pthread_cond_broadcast(&object.cond);
  ::pthread_mutex_unlock(&object.mutex);
}

}  // namespace

int close_device(ibv_context* context) {
  Device& device = impl(context);
  // As libibverbs does, it closes though there are objects left; those stay until they are destroyed, and reach nobody.
  {
    const DomainLock lock(device.domain());
    device.domain().silence(device);
  }
  device.release();
  return 0;
}

ibv_context* import_device(int cmd_fd, bool& ours) {
  ours = is_soft_cmd_fd(cmd_fd);
  return ours ? refuse(EOPNOTSUPP, "ibv_import_device: softroce's objects have no handles to be imported by") : nullptr;
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
  fill_known(attr, size, all);
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
  try {
    impl(context).watch();  // it tells of changes of the host
  } catch (const std::system_error& error) {
    refuse(EAGAIN, fmt::format("ibv_get_async_event: no thread to wait with: {}", error.what()));
    return -1;
  }
  const auto count = [](const ibv_async_event& taken) {
    switch (subject_of(taken.event_type)) {
      case AsyncSubject::kCq:
        return impl(taken.element.cq).count_async_delivered();
      case AsyncSubject::kQp:
        return count_delivered(*taken.element.qp, impl(taken.element.qp).async_delivered);
      case AsyncSubject::kSrq:
        return count_delivered(*taken.element.srq, impl(taken.element.srq).async_delivered);
      case AsyncSubject::kDevice:
        return;
    }
  };
  return impl(context).async_events().pop(*event, count) ? 0 : -1;
}

void ack_async_event(ibv_async_event* event) {
  switch (subject_of(event->event_type)) {
    case AsyncSubject::kCq:
      return acknowledge(*event->element.cq, event->element.cq->async_events_completed);
    case AsyncSubject::kQp:
      return acknowledge(*event->element.qp, event->element.qp->events_completed);
    case AsyncSubject::kSrq:
      return acknowledge(*event->element.srq, event->element.srq->events_completed);
    case AsyncSubject::kDevice:
      return;  // the device does not wait for them
  }
}

}  // namespace fairlead::soft::api
