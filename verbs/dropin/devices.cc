// Devices: ours first, then the system's.
#include <infiniband/verbs.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "verbs/dropin/real_library.h"
#include "verbs/dropin/sysfs.h"
#include "verbs/soft/api/api.h"

#undef ibv_get_device_list
#undef ibv_query_port

namespace soft = fairlead::soft::api;

namespace {

// Stands before the array that the program gets. Who frees the array gives the system's list back too: it keeps the
// system's devices alive.
struct ListHeader {
  ibv_device** system;
};

ibv_device** array_of(ListHeader* header) noexcept { return reinterpret_cast<ibv_device**>(header + 1); }
ListHeader* header_of(ibv_device** array) noexcept { return reinterpret_cast<ListHeader*>(array) - 1; }

std::size_t length_of(ibv_device** list) noexcept {
  std::size_t length = 0;
  while (list != nullptr && list[length] != nullptr) ++length;
  return length;
}

}  // namespace

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  ibv_device** ours = soft::get_device_list(nullptr);
  ibv_device** system = FAIRLEAD_FORWARD(ibv_get_device_list, nullptr);
  const std::size_t our_length = length_of(ours);
  const std::size_t length = our_length + length_of(system);
  auto* header = static_cast<ListHeader*>(std::malloc(sizeof(ListHeader) + (length + 1) * sizeof(ibv_device*)));
  if (header != nullptr) {
    header->system = system;
    ibv_device** end = std::copy_n(ours, our_length, array_of(header));
    end = std::copy_n(system, length - our_length, end);
    *end = nullptr;
    if (count != nullptr) *count = static_cast<int>(length);
  } else if (system != nullptr) {
    FAIRLEAD_FORWARD(ibv_free_device_list, system);
  }
  if (ours != nullptr) soft::free_device_list(ours);
  errno = header != nullptr ? 0 : ENOMEM;
  return header != nullptr ? array_of(header) : nullptr;
}

void ibv_free_device_list(ibv_device** list) {
  if (list == nullptr) return;
  ListHeader* header = header_of(list);
  if (header->system != nullptr) FAIRLEAD_FORWARD(ibv_free_device_list, header->system);
  std::free(header);
}

const char* ibv_get_device_name(ibv_device* device) {
  return soft::is_soft(device) ? soft::get_device_name(device) : FAIRLEAD_FORWARD(ibv_get_device_name, device);
}

// The kernel does not know our devices, so they have no index of its making.
int ibv_get_device_index(ibv_device* device) {
  return soft::is_soft(device) ? -1 : FAIRLEAD_FORWARD(ibv_get_device_index, device);
}

__be64 ibv_get_device_guid(ibv_device* device) {
  return soft::is_soft(device) ? soft::get_device_guid(device) : FAIRLEAD_FORWARD(ibv_get_device_guid, device);
}

ibv_context* ibv_open_device(ibv_device* device) {
  if (!soft::is_soft(device)) return FAIRLEAD_FORWARD(ibv_open_device, device);
  ibv_context* context = soft::open_device(device);
  if (context != nullptr) fairlead::dropin::add_open_context(context);
  return context;
}

int ibv_close_device(ibv_context* context) {
  if (!soft::is_soft(context)) return FAIRLEAD_FORWARD(ibv_close_device, context);
  fairlead::dropin::remove_open_context(context);
  const int error = soft::close_device(context);
  if (error != 0) fairlead::dropin::add_open_context(context);
  return error;
}

ibv_context* ibv_import_device(int cmd_fd) {
  bool ours = false;
  ibv_context* context = soft::import_device(cmd_fd, ours);
  return ours ? context : FAIRLEAD_FORWARD(ibv_import_device, cmd_fd);
}

int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
  return soft::is_soft(context) ? soft::query_device(context, attr) : FAIRLEAD_FORWARD(ibv_query_device, context, attr);
}

// The exported symbol knows the structure as it was before port_cap_flags2; verbs.h calls the context for the rest.
int ibv_query_port(ibv_context* context, std::uint8_t port, _compat_ibv_port_attr* attr) {
  if (!soft::is_soft(context)) return FAIRLEAD_FORWARD(ibv_query_port, context, port, attr);
  ibv_port_attr whole{};
  const int error = soft::query_port(context, port, &whole);
  if (error == 0) std::memcpy(static_cast<void*>(attr), &whole, offsetof(ibv_port_attr, port_cap_flags2));
  return error;
}

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  return soft::is_soft(context) ? soft::get_async_event(context, event)
                                : FAIRLEAD_FORWARD(ibv_get_async_event, context, event);
}

void ibv_ack_async_event(ibv_async_event* event) {
  const ibv_context* owner = nullptr;
  switch (event->event_type) {
    case IBV_EVENT_CQ_ERR:
      owner = event->element.cq->context;
      break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      owner = event->element.qp->context;
      break;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      owner = event->element.srq->context;
      break;
    case IBV_EVENT_WQ_FATAL:
      owner = event->element.wq->context;
      break;
    default:
      return;  // about a port or a device: nothing waits for its acknowledgement
  }
  if (soft::is_soft(owner)) {
    soft::ack_async_event(event);
  } else {
    FAIRLEAD_FORWARD(ibv_ack_async_event, event);
  }
}

}  // extern "C"
