#include "verbs/cm/id.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "verbs/cm/ip_header.h"

namespace fairlead::cm {
namespace {

std::uint32_t random_psn() {
  std::random_device random;
  return random() & soft::Psn::kMask;
}

// The private data of a message, behind the addresses that the manager put before it. `param`, the event's, points to
// it; where there is none, nowhere, which is how programs see that.
template <typename Param>
void keep(EventRecord& record, Param& param, std::span<const std::byte> bytes) noexcept {
  const std::size_t length = std::min(bytes.size(), record.private_data.size() - 1);
  std::copy_n(bytes.begin(), length, record.private_data.begin());
  param.private_data = length != 0 ? record.private_data.data() : nullptr;
  param.private_data_len = static_cast<std::uint8_t>(length);
}

rdma_cm_event_type type_of(const Event& event) noexcept {
  switch (event.type) {
    case Event::Type::kReply:
      return RDMA_CM_EVENT_CONNECT_RESPONSE;
    case Event::Type::kEstablished:
      return RDMA_CM_EVENT_ESTABLISHED;
    case Event::Type::kRejected:
      return RDMA_CM_EVENT_REJECTED;
    case Event::Type::kUnreachable:
      return RDMA_CM_EVENT_UNREACHABLE;
    case Event::Type::kDisconnected:
      return RDMA_CM_EVENT_DISCONNECTED;
    case Event::Type::kTimewaitExit:
      return RDMA_CM_EVENT_TIMEWAIT_EXIT;
    case Event::Type::kResolved:
      return event.status == 0 ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_UNREACHABLE;
  }
  return RDMA_CM_EVENT_CONNECT_ERROR;
}

}  // namespace

Id::Id(Channel* events, void* user_context, rdma_port_space space, ibv_qp_type type)
    : rdma_cm_id{}, starting_psn(random_psn()) {
  rdma_cm_id::channel = events;
  rdma_cm_id::context = user_context;
  rdma_cm_id::ps = space;
  rdma_cm_id::qp_type = type;
}

void Id::push(EventRecord& record) {
  const std::lock_guard lock(events_mutex());
  events().push(record);
}

void Id::push(rdma_cm_event_type type) {
  auto* record = new EventRecord;
  record->owner = this;
  record->event.id = this;
  record->event.event = type;
  push(*record);
}

void Id::place(const Place& at, const IpEndpoint& own) {
  where = at;
  verbs = at.device->context();
  port_num = 1;
  pd = at.device->default_pd();
  const Gid gid = at.device->gid(at.gid_index);
  to_sockaddr({gid, own.port}, false, route.addr.src_storage);
  route.addr.addr.ibaddr.sgid = gid.to_verbs();
  route.addr.addr.ibaddr.pkey = 0xffff;
}

void Id::set_destination(const IpEndpoint& peer) {
  to_sockaddr(peer, false, route.addr.dst_storage);
  route.addr.addr.ibaddr.dgid = peer.address.to_verbs();
}

void Id::on_event(Connection& from, const Event& event) noexcept {
  auto* record = new EventRecord;
  record->owner = this;
  record->event.id = this;
  record->event.event = type_of(event);
  record->event.status = event.status;
  if (event.type == Event::Type::kResolved) {
    rdma_ud_param& ud = record->event.param.ud;
    keep(*record, ud, event.private_data);
    ud.qp_num = from.sidr().qpn;
    ud.qkey = from.sidr().qkey;
    ud.ah_attr.is_global = 1;
    ud.ah_attr.port_num = 1;
    ud.ah_attr.grh.dgid = from.remote().to_verbs();
    ud.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(where.gid_index);
    ud.ah_attr.grh.hop_limit = 64;
    ud.ah_attr.grh.traffic_class = type_of_service;
  } else {
    keep(*record, record->event.param.conn, event.private_data);
  }
  if (event.type == Event::Type::kReply) {
    const Rep& rep = from.rep();
    // Whatever was asked for: more than the peer answers ends the connection.
    responder_resources = cut_to_device(rep.initiator_depth);
    initiator_depth = cut_to_device(rep.responder_resources);
    rdma_conn_param& conn = record->event.param.conn;
    conn.responder_resources = rep.initiator_depth;
    conn.initiator_depth = rep.responder_resources;
    conn.flow_control = rep.end_to_end_flow_control ? 1 : 0;
    conn.rnr_retry_count = rep.rnr_retry_count;
    conn.srq = rep.srq ? 1 : 0;
    conn.qp_num = rep.local_qpn;
  }
  push(*record);
}

User* Id::on_request(Connection& request) noexcept {
  const bool datagram = request.state() == Connection::State::kSidrReqReceived;
  const std::span<const std::byte> bytes =
      datagram ? std::span<const std::byte>(request.sidr_req().private_data) : request.req().private_data;
  const auto header = IpHeader::decode(bytes.first<IpHeader::kBytes>());
  auto& device = static_cast<DeviceCm&>(request.link());
  const auto index = device.index_of(request.local());
  if (!header || !index || datagram != is_datagram()) return nullptr;
  {
    const std::lock_guard lock(events_mutex());
    if (waiting >= backlog) return nullptr;
    ++waiting;
  }
  auto* id = new Id(nullptr, rdma_cm_id::context, ps, qp_type);
  id->place({&device, *index}, {request.local(), source().port});
  id->set_destination({request.remote(), header->source_port});
  id->connection = &request;
  auto* record = new EventRecord;
  record->owner = this;
  record->event.id = id;
  record->event.listen_id = this;
  record->event.event = RDMA_CM_EVENT_CONNECT_REQUEST;
  if (datagram) {
    keep(*record, record->event.param.ud, bytes.subspan(IpHeader::kBytes));
  } else {
    const Req& req = request.req();
    // The peer's requests are answered here and the other way round.
    id->responder_resources = cut_to_device(req.initiator_depth);
    id->initiator_depth = cut_to_device(req.responder_resources);
    rdma_conn_param& conn = record->event.param.conn;
    keep(*record, conn, bytes.subspan(IpHeader::kBytes));
    conn.responder_resources = req.initiator_depth;
    conn.initiator_depth = req.responder_resources;
    conn.flow_control = req.end_to_end_flow_control ? 1 : 0;
    conn.retry_count = req.retry_count;
    conn.rnr_retry_count = req.rnr_retry_count;
    conn.srq = req.srq ? 1 : 0;
    conn.qp_num = req.local_qpn;
  }
  // Together: whoever migrates us meanwhile takes with us the requests that are in our channel, and may end that.
  const std::lock_guard lock(events_mutex());
  id->channel = rdma_cm_id::channel;
  events().push(*record);
  return id;
}

}  // namespace fairlead::cm
