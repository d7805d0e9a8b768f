#include <fmt/format.h>

#include <algorithm>

#include "verbs/cm/rdma_calls.h"
#include "verbs/soft/api/api.h"
#include "verbs/soft/domain/domain.h"

namespace fairlead::cm::api {
namespace {

constexpr int kPeerAccess = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr std::uint8_t kHopLimit = 64;

// What the two ends agreed on, as this end's queue pair needs it.
struct Agreement {
  bool active = false;
  Gid remote;
  Req req;
  Rep rep;
};

std::optional<Agreement> agreement_of(Id& id) {
  if (id.where.device == nullptr) return std::nullopt;
  const soft::DomainLock lock(id.where.device->domain());
  if (id.connection == nullptr) return std::nullopt;
  return Agreement{id.connection->is_active(), id.connection->remote(), id.connection->req(), id.connection->rep()};
}

int to_rtr(Id& id, const Agreement& agreed, ibv_qp_attr& attr) {
  attr.path_mtu = static_cast<ibv_mtu>(agreed.req.path_mtu);
  attr.dest_qp_num = agreed.active ? agreed.rep.local_qpn : agreed.req.local_qpn;
  // A message's starting PSN is where its receiver begins to send (IBTA 12.7.31).
  attr.rq_psn = id.starting_psn;
  attr.max_dest_rd_atomic = id.responder_resources;
  attr.min_rnr_timer = 0;
  attr.ah_attr = {};
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = id.port_num;
  attr.ah_attr.grh.dgid = agreed.remote.to_verbs();
  attr.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(id.where.gid_index);
  attr.ah_attr.grh.flow_label = agreed.req.primary.flow_label;
  attr.ah_attr.grh.hop_limit = kHopLimit;
  attr.ah_attr.grh.traffic_class = agreed.req.primary.traffic_class;
  const int reliable = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  return IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
         (id.qp_type == IBV_QPT_UC ? 0 : reliable);
}

int to_rts(Id& id, const Agreement& agreed, ibv_qp_attr& attr) {
  attr.sq_psn = agreed.active ? agreed.rep.starting_psn : agreed.req.starting_psn;
  // From the wire 0 would be for ever: a peer that is gone would keep the queue pair.
  const std::uint8_t asked = agreed.req.primary.local_ack_timeout;
  attr.timeout = agreed.active || asked != 0 ? asked : kDefaultAckTimeout;
  attr.retry_cnt = agreed.req.retry_count;
  attr.rnr_retry = agreed.active ? agreed.rep.rnr_retry_count : agreed.req.rnr_retry_count;
  attr.max_rd_atomic = id.initiator_depth;
  const int reliable = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  return IBV_QP_STATE | IBV_QP_SQ_PSN | (id.qp_type == IBV_QPT_UC ? 0 : reliable);
}

// The attributes of a datagram queue pair, which has no peer.
int to_datagram(Id& id, ibv_qp_attr& attr) {
  if (attr.qp_state == IBV_QPS_INIT) {
    attr.pkey_index = 0;
    attr.port_num = id.port_num;
    attr.qkey = RDMA_UDP_QKEY;
    return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
  }
  attr.sq_psn = id.starting_psn;
  return attr.qp_state == IBV_QPS_RTS ? IBV_QP_STATE | IBV_QP_SQ_PSN : IBV_QP_STATE;
}

int move(Id& id, ibv_qp_state state) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  int mask = 0;
  if (init_qp_attr(&id, &attr, &mask) != 0) return -1;
  return from_verbs(soft::api::modify_qp(id.qp, &attr, mask));
}

// librdmacm's completion queues for programs that bring none: as long as the work queue, with a channel.
int make_cq(Id& id, std::uint32_t length, ibv_cq*& cq, ibv_comp_channel*& channel) {
  channel = soft::api::create_comp_channel(id.verbs);
  if (channel == nullptr) return -1;
  rdma_cm_id* const context = &id;  // which is not where the Id begins; rdma_get_send_comp() compares it
  cq = soft::api::create_cq(id.verbs, static_cast<int>(std::max(1U, length)), context, channel, 0);
  return cq != nullptr ? 0 : -1;
}

// A program may have put one of its own for both directions into the identifier.
void destroy_cqs(Id& id) {
  if (id.send_cq == id.recv_cq) id.send_cq = nullptr;
  if (id.send_cq_channel == id.recv_cq_channel) id.send_cq_channel = nullptr;
  if (id.send_cq != nullptr) soft::api::destroy_cq(std::exchange(id.send_cq, nullptr));
  if (id.recv_cq != nullptr) soft::api::destroy_cq(std::exchange(id.recv_cq, nullptr));
  if (id.send_cq_channel != nullptr) soft::api::destroy_comp_channel(std::exchange(id.send_cq_channel, nullptr));
  if (id.recv_cq_channel != nullptr) soft::api::destroy_comp_channel(std::exchange(id.recv_cq_channel, nullptr));
}

// Fills in what the program left out, has the queue pair made, and brings it to INIT (a datagram one to RTS).
template <typename Attr, typename Make>
int create(Id& id, Attr& attr, ibv_pd* pd, Make&& make) {
  if (id.where.device == nullptr) return refuse(EINVAL, "rdma_create_qp: the identifier is not bound to a device");
  if (id.qp != nullptr) return refuse(EINVAL, "rdma_create_qp: the identifier has a queue pair");
  if (pd != nullptr && pd->context != id.verbs) {
    return refuse(EINVAL, "rdma_create_qp: the protection domain is of another device");
  }
  const auto fail = [&id] {
    const int error = errno;
    if (id.qp != nullptr) soft::api::destroy_qp(std::exchange(id.qp, nullptr));
    destroy_cqs(id);
    errno = error;
    return -1;
  };
  if (attr.send_cq == nullptr) {
    if (make_cq(id, attr.cap.max_send_wr, id.send_cq, id.send_cq_channel) != 0) return fail();
    attr.send_cq = id.send_cq;
  }
  if (attr.recv_cq == nullptr) {
    if (make_cq(id, attr.cap.max_recv_wr, id.recv_cq, id.recv_cq_channel) != 0) return fail();
    attr.recv_cq = id.recv_cq;
  }
  if (attr.srq == nullptr) attr.srq = id.srq;
  id.qp = make();
  if (id.qp == nullptr) return fail();
  id.qp_type = attr.qp_type;
  if (pd != nullptr) id.pd = pd;
  if (qp_to_init(id) != 0) return fail();
  if (id.qp_type == IBV_QPT_UD && (move(id, IBV_QPS_RTR) != 0 || move(id, IBV_QPS_RTS) != 0)) return fail();
  return 0;
}

}  // namespace

int qp_to_init(Id& id) { return move(id, IBV_QPS_INIT); }

int qp_to_ready(Id& id) {
  // Again to INIT: the access that the peer may have is known only now.
  return move(id, IBV_QPS_INIT) == 0 && move(id, IBV_QPS_RTR) == 0 && move(id, IBV_QPS_RTS) == 0 ? 0 : -1;
}

int qp_to_error(Id& id) {
  if (id.qp == nullptr) return 0;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  return from_verbs(soft::api::modify_qp(id.qp, &attr, IBV_QP_STATE));
}

int init_qp_attr(rdma_cm_id* base, ibv_qp_attr* attr, int* mask) {
  Id& id = impl(base);
  if (id.where.device == nullptr) return refuse(EINVAL, "rdma_init_qp_attr: the identifier is not bound to a device");
  if (id.qp_type == IBV_QPT_UD) {
    *mask = to_datagram(id, *attr);
    return 0;
  }
  if (attr->qp_state == IBV_QPS_INIT) {
    attr->pkey_index = 0;
    attr->port_num = id.port_num;
    attr->qp_access_flags = kPeerAccess;
    *mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    return 0;
  }
  const auto agreed = agreement_of(id);
  if (!agreed) return refuse(EINVAL, "rdma_init_qp_attr: the identifier has no connection");
  if (attr->qp_state == IBV_QPS_RTR) {
    *mask = to_rtr(id, *agreed, *attr);
  } else if (attr->qp_state == IBV_QPS_RTS) {
    *mask = to_rts(id, *agreed, *attr);
  } else {
    return refuse(EINVAL, "rdma_init_qp_attr: attributes are for INIT, RTR or RTS");
  }
  return 0;
}

int create_qp(rdma_cm_id* base, ibv_pd* pd, ibv_qp_init_attr* attr) {
  Id& id = impl(base);
  return create(id, *attr, pd, [&] { return soft::api::create_qp(pd != nullptr ? pd : id.pd, attr); });
}

int create_qp_ex(rdma_cm_id* base, ibv_qp_init_attr_ex* attr) {
  Id& id = impl(base);
  ibv_pd* pd = (attr->comp_mask & IBV_QP_INIT_ATTR_PD) != 0 ? attr->pd : nullptr;
  return create(id, *attr, pd, [&] {
    attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
    attr->pd = pd != nullptr ? pd : id.pd;
    return soft::api::create_qp_ex(id.verbs, attr);
  });
}

void destroy_qp(rdma_cm_id* id) {
  if (id->qp != nullptr) soft::api::destroy_qp(std::exchange(id->qp, nullptr));
  destroy_cqs(impl(id));
}

int create_srq(rdma_cm_id* id, ibv_pd* pd, ibv_srq_init_attr* attr) {
  if (impl(id).where.device == nullptr) return refuse(EINVAL, "rdma_create_srq: the identifier is not bound");
  id->srq = soft::api::create_srq(pd != nullptr ? pd : id->pd, attr);
  return id->srq != nullptr ? 0 : -1;
}

int create_srq_ex(rdma_cm_id* id, ibv_srq_init_attr_ex* attr) {
  if (impl(id).where.device == nullptr) return refuse(EINVAL, "rdma_create_srq_ex: the identifier is not bound");
  if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0) {
    attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
    attr->pd = id->pd;
  }
  id->srq = soft::api::create_srq_ex(id->verbs, attr);
  return id->srq != nullptr ? 0 : -1;
}

void destroy_srq(rdma_cm_id* id) {
  if (id->srq != nullptr) soft::api::destroy_srq(std::exchange(id->srq, nullptr));
}

}  // namespace fairlead::cm::api
