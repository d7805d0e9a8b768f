#include <fmt/format.h>

#include <array>
#include <cstring>
#include <memory>

#include "verbs/cm/rdma_calls.h"
#include "verbs/soft/domain/domain.h"

namespace fairlead::cm::api {
namespace {

// The peer accepted: the queue pair becomes ready before the peer is told that it is.
void finish_connecting(Id& id, rdma_cm_event& event) {
  if (id.qp == nullptr) return;  // the program has its own, and calls rdma_establish
  const bool ready = qp_to_ready(id) == 0;
  const int error = errno;
  const soft::DomainLock lock(id.where.device->domain());
  // Another thread may be destroying the identifier, or the peer may have thought better of it.
  if (ready && id.connection != nullptr && id.connection->establish()) {
    event.event = RDMA_CM_EVENT_ESTABLISHED;
    return;
  }
  if (!ready && id.connection != nullptr) id.connection->reject(RejectReason::kConsumer, {});
  event.event = RDMA_CM_EVENT_CONNECT_ERROR;
  event.status = ready ? -ECONNRESET : -error;
}

// A request's identifier lives in the channel of the listener, or in one of its own if the listener's is. Where there
// is none to be had the request is refused: the listener may end before it. 0, or -1 with errno and the event gone.
int hand_over(rdma_cm_event& request) {
  Id& listener = impl(request.listen_id);
  rdma_cm_id* const id = request.id;
  {
    const std::lock_guard lock(events_mutex());
    --listener.waiting;
  }
  if (!listener.own_channel || migrate_id(id, nullptr) == 0) return 0;
  const int error = errno;
  ack_cm_event(&request);
  destroy_id(id);
  return refuse(error, fmt::format("a request is refused, for want of an event channel: {}", std::strerror(error)));
}

// With them go the identifiers of requests that nobody has taken. Under events_mutex().
void move_events(Id& id, Channel& target) {
  const auto moving = id.events().extract([&id](const EventRecord& record) { return record.owner == &id; });
  for (EventRecord* record : moving) {
    target.push(*record);
    if (record->event.event == RDMA_CM_EVENT_CONNECT_REQUEST) move_events(impl(record->event.id), target);
  }
  id.channel = &target;
}

}  // namespace

rdma_event_channel* create_event_channel() {
  auto channel = std::make_unique<Channel>();
  return channel->valid() ? channel.release() : nullptr;
}

void destroy_event_channel(rdma_event_channel* channel) { Channel::destroy(static_cast<Channel*>(channel)); }

int get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  if (channel == nullptr || event == nullptr) return refuse(EINVAL, "rdma_get_cm_event: no channel");
  EventRecord* record = static_cast<Channel*>(channel)->take();
  if (record == nullptr) return -1;
  rdma_cm_event& taken = record->event;
  if (taken.event == RDMA_CM_EVENT_CONNECT_RESPONSE) finish_connecting(impl(taken.id), taken);
  if (taken.event == RDMA_CM_EVENT_CONNECT_REQUEST && hand_over(taken) != 0) return -1;
  if (taken.event == RDMA_CM_EVENT_REJECTED || taken.event == RDMA_CM_EVENT_UNREACHABLE) qp_to_error(impl(taken.id));
  *event = &taken;
  return 0;
}

int ack_cm_event(rdma_cm_event* event) {
  if (event == nullptr) return refuse(EINVAL, "rdma_ack_cm_event: no event");
  EventRecord& record = record_of(event);
  {
    const std::lock_guard lock(events_mutex());
    ++record.owner->acked;
    acknowledged().notify_all();
  }
  delete &record;
  return 0;
}

const char* event_str(rdma_cm_event_type event) {
  static constexpr std::array kNames = {
      "RDMA_CM_EVENT_ADDR_RESOLVED",  "RDMA_CM_EVENT_ADDR_ERROR",      "RDMA_CM_EVENT_ROUTE_RESOLVED",
      "RDMA_CM_EVENT_ROUTE_ERROR",    "RDMA_CM_EVENT_CONNECT_REQUEST", "RDMA_CM_EVENT_CONNECT_RESPONSE",
      "RDMA_CM_EVENT_CONNECT_ERROR",  "RDMA_CM_EVENT_UNREACHABLE",     "RDMA_CM_EVENT_REJECTED",
      "RDMA_CM_EVENT_ESTABLISHED",    "RDMA_CM_EVENT_DISCONNECTED",    "RDMA_CM_EVENT_DEVICE_REMOVAL",
      "RDMA_CM_EVENT_MULTICAST_JOIN", "RDMA_CM_EVENT_MULTICAST_ERROR", "RDMA_CM_EVENT_ADDR_CHANGE",
      "RDMA_CM_EVENT_TIMEWAIT_EXIT"};
  static_assert(kNames.size() == RDMA_CM_EVENT_TIMEWAIT_EXIT + 1);
  const auto index = static_cast<std::size_t>(event);  // a caller in C may pass any number
  return index < kNames.size() ? kNames[index] : "UNKNOWN EVENT";
}

int migrate_id(rdma_cm_id* base, rdma_event_channel* channel) {
  Id& id = impl(base);
  if (id.own_channel && channel == nullptr) return refuse(EINVAL, "rdma_migrate_id: the identifier is synchronous");
  auto own = channel == nullptr ? std::make_unique<Channel>() : nullptr;
  if (own && !own->valid()) return -1;
  // Acknowledged here, since the event stays behind with the channel.
  if (id.event != nullptr) {
    ack_cm_event(id.event);
    id.event = nullptr;
  }
  Channel& target = own ? *own : *static_cast<Channel*>(channel);
  std::unique_ptr<Channel> old;
  const std::lock_guard lock(events_mutex());
  move_events(id, target);
  old = std::exchange(id.own_channel, std::move(own));
  return 0;
}

int complete(Id& id) {
  if (!id.own_channel) return 0;
  if (id.event != nullptr) {
    ack_cm_event(id.event);
    id.event = nullptr;
  }
  if (get_cm_event(id.own_channel.get(), &id.event) != 0) return -1;
  const int status = id.event->status;
  if (status == 0) return 0;
  errno = status < 0 ? -status : ECONNREFUSED;  // a reason to reject is no errno
  return -1;
}

}  // namespace fairlead::cm::api
