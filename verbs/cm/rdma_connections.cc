#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "verbs/cm/ip_header.h"
#include "verbs/cm/rdma_calls.h"
#include "verbs/soft/domain/domain.h"
#include "verbs/soft/port/interfaces.h"

namespace fairlead::cm::api {
namespace {

using soft::DomainLock;

constexpr int kDefaultBacklog = 1024;
constexpr std::uint8_t kDefaultRetries = 7;
constexpr std::uint8_t kTargetAckDelay = 15;  // as the device reports it

std::span<const std::byte> bytes_of(const void* data, std::size_t length) noexcept {
  return {static_cast<const std::byte*>(data), data != nullptr ? length : 0};
}

bool fits(std::size_t length, std::size_t limit, std::string_view call) {
  if (length <= limit) return true;
  refuse(EINVAL, fmt::format("{}: {} bytes of private data; at most {} fit", call, length, limit));
  return false;
}

// To who accepts "as many as you can" means what the peer asked for.
std::uint8_t granted(std::uint8_t wanted, std::uint8_t asked) noexcept {
  static_assert(RDMA_MAX_RESP_RES == RDMA_MAX_INIT_DEPTH);
  return wanted == RDMA_MAX_RESP_RES ? asked : cut_to_device(wanted);
}

void put_private_data(Id& id, std::span<std::byte> to, std::span<const std::byte> user) noexcept {
  const IpEndpoint own = id.source();
  IpHeader{id.ipv6(), own.port, own.address, id.destination().address}.encode(to.data());
  std::copy(user.begin(), user.end(), to.begin() + IpHeader::kBytes);
}

std::uint64_t service_of(const Id& id, std::uint16_t port) noexcept {
  return service_id(static_cast<std::uint16_t>(id.ps), port);
}

/// What both ends carry, as far as that is known here: a device of this host may be at an interface that takes less.
ibv_mtu path_mtu(Id& id) {
  const ibv_mtu mtu = id.where.device->path_mtu(id.where.gid_index);
  const Gid& remote = id.destination().address;
  if (!is_local(remote)) return mtu;
  const std::uint32_t interface = soft::interface_of(remote).mtu;
  if (interface == 0) return mtu;  // it has the address by a route alone, or that cannot be seen
  return std::min(mtu, soft::largest_ibv_mtu(soft::largest_path_mtu(interface, !remote.is_ipv4())));
}

Req make_req(Id& id, const rdma_conn_param& param) {
  Req req;
  req.service_id = service_of(id, id.destination().port);
  req.local_qpn = id.qp != nullptr ? id.qp->qp_num : param.qp_num;
  req.responder_resources = id.responder_resources = cut_to_device(param.responder_resources);
  req.initiator_depth = id.initiator_depth = cut_to_device(param.initiator_depth);
  req.transport_service = id.qp_type == IBV_QPT_UC ? 1 : 0;
  req.end_to_end_flow_control = param.flow_control != 0;
  req.starting_psn = id.starting_psn;
  req.retry_count = std::min(param.retry_count, kDefaultRetries);
  req.rnr_retry_count = std::min(param.rnr_retry_count, kDefaultRetries);
  req.srq = id.qp != nullptr ? id.qp->srq != nullptr : param.srq != 0;
  req.path_mtu = static_cast<std::uint8_t>(path_mtu(id));
  std::random_device random;
  req.primary.flow_label = random() & 0xfffff;
  req.primary.traffic_class = id.type_of_service;
  req.primary.local_ack_timeout = id.ack_timeout;
  put_private_data(id, req.private_data, bytes_of(param.private_data, param.private_data_len));
  return req;
}

int accept_datagrams(Id& id, const rdma_conn_param* param) {
  SidrRep rep;
  rep.qpn = id.qp != nullptr ? id.qp->qp_num : param != nullptr ? param->qp_num : 0;
  rep.qkey = RDMA_UDP_QKEY;
  if (param != nullptr) {
    const auto user = bytes_of(param->private_data, param->private_data_len);
    if (!fits(user.size(), rep.private_data.size(), "rdma_accept")) return -1;
    std::copy(user.begin(), user.end(), rep.private_data.begin());
  }
  const DomainLock lock(id.where.device->domain());
  return id.connection->answer(rep) ? 0 : refuse(EINVAL, "rdma_accept: the request was answered before");
}

/// The peer hears of what only it can mend. -1, and errno as it is.
int cannot_accept(Id& id) {
  const int error = errno;
  const ibv_mtu most = id.where.device->path_mtu(id.where.gid_index);
  const DomainLock lock(id.where.device->domain());
  const bool waits = id.connection->state() == Connection::State::kReqReceived;
  // Else the program says why, and gives its data.
  if (waits && id.connection->req().path_mtu > most) id.connection->reject(RejectReason::kInvalidPathMtu, {});
  errno = error;
  return -1;
}

Rep make_rep(Id& id, const rdma_conn_param* param) {
  Rep rep;
  rep.starting_psn = id.starting_psn;
  rep.target_ack_delay = kTargetAckDelay;
  rep.rnr_retry_count = kDefaultRetries;
  if (param != nullptr) {
    id.responder_resources = granted(param->responder_resources, id.responder_resources);
    id.initiator_depth = granted(param->initiator_depth, id.initiator_depth);
    rep.rnr_retry_count = std::min(param->rnr_retry_count, kDefaultRetries);
    rep.end_to_end_flow_control = param->flow_control != 0;
    rep.srq = param->srq != 0;
    rep.local_qpn = param->qp_num;
    const auto user = bytes_of(param->private_data, param->private_data_len);
    std::copy(user.begin(), user.end(), rep.private_data.begin());
  }
  if (id.qp != nullptr) {
    rep.local_qpn = id.qp->qp_num;
    rep.srq = id.qp->srq != nullptr;
  }
  rep.responder_resources = id.responder_resources;
  rep.initiator_depth = id.initiator_depth;
  return rep;
}

bool listen_on(DeviceCm& device, Id& id) {
  const DomainLock lock(device.domain());
  errno = EADDRINUSE;
  return device.manager.listen(id.service, id.source().address, id, id.family());
}

int hear_at(Id& id, DeviceCm& device, std::uint32_t gid_index, LogLevel if_refused) {
  const int error = device.listen_at(gid_index, id.service, if_refused);
  if (error == 0) id.heard_at.emplace_back(&device, device.gid(gid_index));
  return error;
}

// At an address: there. Else at every address that the device can have now; those that others hold, or listen at, are
// left to them.
int hear(Id& id) {
  if (id.where.device != nullptr) return hear_at(id, *id.where.device, id.where.gid_index, LogLevel::kError);
  for (DeviceCm* device : id.listening) {
    for (std::uint32_t i = 1; i < soft::kGidTableLength; ++i) {
      const Gid gid = device->gid(i);
      if (!gid.is_null() && hears(id.family(), gid)) hear_at(id, *device, i, LogLevel::kInfo);
    }
  }
  return 0;
}

}  // namespace

int listen(rdma_cm_id* base, int backlog) {
  Id& id = impl(base);
  if (!id.listening.empty()) return refuse(EINVAL, "rdma_listen: the identifier listens already");
  if (id.route.addr.src_addr.sa_family == AF_UNSPEC) {
    sockaddr_storage any{};
    to_sockaddr({}, false, any);
    if (bind_addr(base, reinterpret_cast<sockaddr*>(&any)) != 0) return -1;
  }
  DeviceCm* device = id.where.device != nullptr ? id.where.device : primary_device();
  if (device == nullptr) return -1;
  if (id.where.stands_in) {
    return refuse(EADDRINUSE,
                  "rdma_listen: another process's device has the address; give this one an address of its "
                  "own with FAIRLEAD_SOFT_ADDRESS");
  }
  const std::vector<DeviceCm*> devices = id.where.device != nullptr ? std::vector{device} : serving_devices();
  id.service = service_of(id, id.source().port);
  id.backlog = static_cast<unsigned>(backlog > 0 ? backlog : kDefaultBacklog);
  for (DeviceCm* at : devices) {
    if (at->default_pd() == nullptr || !listen_on(*at, id)) {
      const int error = errno;
      unlisten(id);
      return refuse(error, fmt::format("rdma_listen: port {}: {}", id.source().port, std::strerror(error)));
    }
    id.listening.push_back(at);
  }
  if (const int error = hear(id); error != 0) {
    unlisten(id);
    return refuse(error, "rdma_listen: requests to the address do not come here");
  }
  return 0;
}

int get_request(rdma_cm_id* base, rdma_cm_id** result) {
  Id& listener = impl(base);
  if (!listener.own_channel) return refuse(EINVAL, "rdma_get_request: the listener has an event channel");
  if (complete(listener) != 0) return -1;
  if (listener.event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
    return refuse(EINVAL, "rdma_get_request: the event is no request");
  }
  // The event becomes that of the new identifier, which acknowledges it when it ends: the listener may end before.
  rdma_cm_event* event = std::exchange(listener.event, nullptr);
  rdma_cm_id* id = event->id;
  {
    const std::lock_guard lock(events_mutex());
    record_of(event).owner = &impl(id);
    --listener.delivered;
    ++impl(id).delivered;
  }
  if (listener.request_qp) {
    ibv_qp_init_attr attr = *listener.request_qp;
    attr.qp_type = listener.qp_type;
    if (create_qp(id, listener.request_pd, &attr) != 0) {
      const int error = errno;
      id->event = event;
      destroy_id(id);
      errno = error;
      return -1;
    }
  }
  id->event = event;
  *result = id;
  return 0;
}

int connect(rdma_cm_id* base, rdma_conn_param* given) {
  Id& id = impl(base);
  if (id.where.device == nullptr || id.route.addr.dst_addr.sa_family == AF_UNSPEC) {
    return refuse(EINVAL, "rdma_connect: resolve the address first");
  }
  rdma_conn_param param{};
  param.responder_resources = param.initiator_depth = RDMA_MAX_RESP_RES;
  param.retry_count = param.rnr_retry_count = kDefaultRetries;
  if (given != nullptr) param = *given;
  const std::size_t room = (id.is_datagram() ? SidrReq::kPrivateBytes : Req::kPrivateBytes) - IpHeader::kBytes;
  if (!fits(param.private_data_len, room, "rdma_connect")) return -1;
  if (const int error = id.where.device->bind_port(id.where.gid_index); error != 0) {
    return refuse(error, "rdma_connect: the port of the address is not ours");
  }
  const Gid local = id.where.device->gid(id.where.gid_index);
  const Req req = id.is_datagram() ? Req{} : make_req(id, param);
  {
    const DomainLock lock(id.where.device->domain());
    if (id.connection != nullptr) return refuse(EISCONN, "rdma_connect: the identifier has a connection");
    id.connection = &id.where.device->manager.open(local, id.destination().address, id);
    if (id.is_datagram()) {
      SidrReq request;
      request.service_id = service_of(id, id.destination().port);
      put_private_data(id, request.private_data, bytes_of(param.private_data, param.private_data_len));
      id.connection->resolve(request);
    } else {
      id.connection->connect(req);
    }
  }
  return complete(id);
}

int establish(rdma_cm_id* base) {
  Id& id = impl(base);
  if (id.where.device == nullptr) return refuse(EINVAL, "rdma_establish: the identifier has no connection");
  const DomainLock lock(id.where.device->domain());
  if (id.qp != nullptr || id.connection == nullptr || !id.connection->establish()) {
    return refuse(EINVAL, "rdma_establish: no answer of the peer waits for this");
  }
  return 0;
}

int accept(rdma_cm_id* base, rdma_conn_param* param) {
  Id& id = impl(base);
  if (id.connection == nullptr) return refuse(EINVAL, "rdma_accept: the identifier is of no request");
  if (id.is_datagram()) return accept_datagrams(id, param);
  if (param != nullptr && !fits(param->private_data_len, Rep::kPrivateBytes, "rdma_accept")) return -1;
  const Rep rep = make_rep(id, param);
  // Ready before the peer knows: its first packet may overtake its RTU.
  if (id.qp != nullptr && qp_to_ready(id) != 0) return cannot_accept(id);
  {
    const DomainLock lock(id.where.device->domain());
    if (!id.connection->accept(rep)) return refuse(ECONNRESET, "rdma_accept: the request is gone");
  }
  return complete(id);
}

int reject(rdma_cm_id* base, const void* private_data, std::uint8_t length) {
  Id& id = impl(base);
  if (id.connection == nullptr) return refuse(EINVAL, "rdma_reject: the identifier is of no request");
  if (!fits(length, Rej::kPrivateBytes, "rdma_reject")) return -1;
  const DomainLock lock(id.where.device->domain());
  return id.connection->reject(RejectReason::kConsumer, bytes_of(private_data, length))
             ? 0
             : refuse(EINVAL, "rdma_reject: the request was answered or is gone");
}

int notify(rdma_cm_id* base, ibv_event_type event) {
  Id& id = impl(base);
  if (id.connection == nullptr) return refuse(EINVAL, "rdma_notify: the identifier has no connection");
  if (event != IBV_EVENT_COMM_EST) return refuse(EINVAL, "rdma_notify: only IBV_EVENT_COMM_EST means something here");
  const DomainLock lock(id.where.device->domain());
  if (!id.connection->is_active()) id.connection->establish();
  return 0;
}

int disconnect(rdma_cm_id* base) {
  Id& id = impl(base);
  if (id.connection == nullptr) return refuse(EINVAL, "rdma_disconnect: the identifier has no connection");
  if (qp_to_error(id) != 0) return -1;
  bool tells = false;
  {
    const DomainLock lock(id.where.device->domain());
    tells = id.connection->disconnect();
  }
  return tells ? complete(id) : 0;
}

}  // namespace fairlead::cm::api
