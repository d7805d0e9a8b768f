#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "fairlead/log.h"
#include "verbs/cm/rdma_calls.h"
#include "verbs/soft/domain/domain.h"

namespace fairlead::cm::api {
namespace {

constexpr int kResolveTimeoutMs = 2000;

ibv_qp_type type_of(rdma_port_space space) noexcept {
  return space == RDMA_PS_UDP || space == RDMA_PS_IPOIB ? IBV_QPT_UD : IBV_QPT_RC;
}

int create(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space space, ibv_qp_type type) {
  auto own = channel == nullptr ? std::make_unique<Channel>() : nullptr;
  if (own && !own->valid()) return -1;
  auto* made = new Id(own ? own.get() : static_cast<Channel*>(channel), context, space, type);
  made->own_channel = std::move(own);
  *id = made;
  return 0;
}

// Nobody will take these any more; requests among them are refused.
void drop_undelivered(Id& id) {
  std::deque<EventRecord*> dropped;
  {
    const std::lock_guard lock(events_mutex());
    dropped = id.events().extract([&id](const EventRecord& record) { return record.owner == &id; });
  }
  for (EventRecord* record : dropped) {
    if (record->event.event == RDMA_CM_EVENT_CONNECT_REQUEST) destroy_id(record->event.id);
    delete record;
  }
}

void settle_events(Id& id) {
  drop_undelivered(id);
  if (id.event != nullptr) ack_cm_event(id.event);
  std::unique_lock lock(events_mutex());
  acknowledged().wait(lock, [&id] { return id.acked == id.delivered; });
}

}  // namespace

int refuse(int error, std::string_view why) {
  log(LogLevel::kInfo, fmt::format("rdma_cm on softroce: {}", why));
  errno = error;
  return -1;
}

void release_connection(Id& id) {
  if (id.where.device == nullptr) return;
  const soft::DomainLock lock(id.where.device->domain());
  if (Connection* connection = std::exchange(id.connection, nullptr)) connection->release();
}

void unlisten(Id& id) {
  for (const auto& [device, gid] : std::exchange(id.heard_at, {})) device->leave(gid, id.service);
  for (DeviceCm* device : std::exchange(id.listening, {})) {
    const soft::DomainLock lock(device->domain());
    device->manager.unlisten(id.service, id);
  }
}

int create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space space) {
  if (id == nullptr) return refuse(EINVAL, "rdma_create_id: nowhere to put the identifier");
  return create(channel, id, context, space, type_of(space));
}

int destroy_id(rdma_cm_id* base) {
  Id& id = impl(base);
  unlisten(id);
  release_connection(id);
  if (id.events().is_mine()) settle_events(id);
  delete &id;
  return 0;
}

int create_ep(rdma_cm_id** result, rdma_addrinfo* info, ibv_pd* pd, ibv_qp_init_attr* attr) {
  rdma_cm_id* id = nullptr;
  const auto space = static_cast<rdma_port_space>(info->ai_port_space);
  if (create(nullptr, &id, nullptr, space, static_cast<ibv_qp_type>(info->ai_qp_type)) != 0) return -1;
  const auto fail = [id] {
    const int error = errno;
    destroy_ep(id);
    errno = error;
    return -1;
  };
  if ((info->ai_flags & RAI_PASSIVE) != 0) {
    if (bind_addr(id, info->ai_src_addr) != 0) return fail();
    impl(id).request_pd = pd;
    if (attr != nullptr) impl(id).request_qp = std::make_unique<ibv_qp_init_attr>(*attr);
    *result = id;
    return 0;
  }
  if (resolve_addr(id, info->ai_src_addr, info->ai_dst_addr, kResolveTimeoutMs) != 0) return fail();
  if (resolve_route(id, kResolveTimeoutMs) != 0) return fail();
  if (attr != nullptr) {
    attr->qp_type = static_cast<ibv_qp_type>(info->ai_qp_type);
    if (create_qp(id, pd, attr) != 0) return fail();
  }
  *result = id;
  return 0;
}

void destroy_ep(rdma_cm_id* id) {
  if (id->qp != nullptr) destroy_qp(id);
  if (id->srq != nullptr) destroy_srq(id);
  destroy_id(id);
}

int set_option(rdma_cm_id* base, int level, int name, void* value, std::size_t length) {
  Id& id = impl(base);
  std::uint8_t byte = 0;
  if (value != nullptr && length != 0) std::memcpy(&byte, value, 1);
  if (level == RDMA_OPTION_ID && length == sizeof(byte)) {
    if (name == RDMA_OPTION_ID_TOS) {
      id.type_of_service = byte;
      return 0;
    }
    if (name == RDMA_OPTION_ID_ACK_TIMEOUT && byte < 32) {
      id.ack_timeout = byte;
      return 0;
    }
  }
  if (level == RDMA_OPTION_ID && length == sizeof(int)) {
    int flag = 0;
    if (value != nullptr) std::memcpy(&flag, value, sizeof(flag));
    if (name == RDMA_OPTION_ID_AFONLY && id.listening.empty()) {
      id.ipv6_only = flag != 0;
      return 0;
    }
    if (name == RDMA_OPTION_ID_REUSEADDR) return 0;  // ports are taken when something listens, and free again after
  }
  return refuse(ENOSYS, fmt::format("rdma_set_option: level {}, option {} of {} bytes is not supported; use "
                                    "RDMA_OPTION_ID with TOS, ACK_TIMEOUT, REUSEADDR or AFONLY",
                                    level, name, length));
}

ibv_context** get_devices(int* count) {
  if (primary_device() == nullptr) return nullptr;
  const auto serving = serving_devices();
  auto** list = static_cast<ibv_context**>(std::calloc(serving.size() + 1, sizeof(ibv_context*)));
  if (list == nullptr) return nullptr;
  for (std::size_t i = 0; i < serving.size(); ++i) list[i] = serving[i]->context();
  if (count != nullptr) *count = static_cast<int>(serving.size());
  return list;
}

void free_devices(ibv_context** list) { std::free(static_cast<void*>(list)); }

}  // namespace fairlead::cm::api
