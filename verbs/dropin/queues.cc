// Completion channels and queues, shared receive queues, queue pairs, address handles, multicast.
#include <infiniband/verbs.h>

#include "verbs/dropin/real_library.h"
#include "verbs/soft/api/api.h"

namespace soft = fairlead::soft::api;

namespace {

template <typename Object>
bool is_soft(const Object* object) noexcept {
  return soft::is_soft(object->context);
}

}  // namespace

extern "C" {

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  return soft::is_soft(context) ? soft::create_comp_channel(context)
                                : FAIRLEAD_FORWARD(ibv_create_comp_channel, context);
}

int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  return is_soft(channel) ? soft::destroy_comp_channel(channel) : FAIRLEAD_FORWARD(ibv_destroy_comp_channel, channel);
}

ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* user, ibv_comp_channel* channel, int comp_vector) {
  return soft::is_soft(context) ? soft::create_cq(context, cqe, user, channel, comp_vector)
                                : FAIRLEAD_FORWARD(ibv_create_cq, context, cqe, user, channel, comp_vector);
}

int ibv_resize_cq(ibv_cq* cq, int cqe) {
  return is_soft(cq) ? soft::resize_cq(cq, cqe) : FAIRLEAD_FORWARD(ibv_resize_cq, cq, cqe);
}

int ibv_destroy_cq(ibv_cq* cq) { return is_soft(cq) ? soft::destroy_cq(cq) : FAIRLEAD_FORWARD(ibv_destroy_cq, cq); }

int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** user) {
  return is_soft(channel) ? soft::get_cq_event(channel, cq, user)
                          : FAIRLEAD_FORWARD(ibv_get_cq_event, channel, cq, user);
}

void ibv_ack_cq_events(ibv_cq* cq, unsigned int count) {
  if (is_soft(cq)) {
    soft::ack_cq_events(cq, count);
  } else {
    FAIRLEAD_FORWARD(ibv_ack_cq_events, cq, count);
  }
}

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* init) {
  return is_soft(pd) ? soft::create_srq(pd, init) : FAIRLEAD_FORWARD(ibv_create_srq, pd, init);
}

int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
  return is_soft(srq) ? soft::modify_srq(srq, attr, mask) : FAIRLEAD_FORWARD(ibv_modify_srq, srq, attr, mask);
}

int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
  return is_soft(srq) ? soft::query_srq(srq, attr) : FAIRLEAD_FORWARD(ibv_query_srq, srq, attr);
}

int ibv_destroy_srq(ibv_srq* srq) {
  return is_soft(srq) ? soft::destroy_srq(srq) : FAIRLEAD_FORWARD(ibv_destroy_srq, srq);
}

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* init) {
  return is_soft(pd) ? soft::create_qp(pd, init) : FAIRLEAD_FORWARD(ibv_create_qp, pd, init);
}

ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  return is_soft(qp) ? soft::qp_to_qp_ex(qp) : FAIRLEAD_FORWARD(ibv_qp_to_qp_ex, qp);
}

int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  return is_soft(qp) ? soft::modify_qp(qp, attr, mask) : FAIRLEAD_FORWARD(ibv_modify_qp, qp, attr, mask);
}

int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) {
  return is_soft(qp) ? soft::query_qp(qp, attr, mask, init) : FAIRLEAD_FORWARD(ibv_query_qp, qp, attr, mask, init);
}

int ibv_query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode opcode, std::uint32_t flags) {
  return is_soft(qp) ? soft::query_qp_data_in_order(qp, opcode, flags)
                     : FAIRLEAD_FORWARD(ibv_query_qp_data_in_order, qp, opcode, flags);
}

int ibv_destroy_qp(ibv_qp* qp) { return is_soft(qp) ? soft::destroy_qp(qp) : FAIRLEAD_FORWARD(ibv_destroy_qp, qp); }

// Enhanced connection establishment is a vendor's private matter; a device without it says so, as Linux rxe does.
int ibv_set_ece(ibv_qp* qp, ibv_ece* ece) {
  return is_soft(qp) ? (errno = EOPNOTSUPP) : FAIRLEAD_FORWARD(ibv_set_ece, qp, ece);
}

int ibv_query_ece(ibv_qp* qp, ibv_ece* ece) {
  return is_soft(qp) ? (errno = EOPNOTSUPP) : FAIRLEAD_FORWARD(ibv_query_ece, qp, ece);
}

ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  return is_soft(pd) ? soft::create_ah(pd, attr) : FAIRLEAD_FORWARD(ibv_create_ah, pd, attr);
}

int ibv_init_ah_from_wc(ibv_context* context, std::uint8_t port, ibv_wc* completion, ibv_grh* grh, ibv_ah_attr* attr) {
  return soft::is_soft(context) ? soft::init_ah_from_wc(context, port, completion, grh, attr)
                                : FAIRLEAD_FORWARD(ibv_init_ah_from_wc, context, port, completion, grh, attr);
}

ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* completion, ibv_grh* grh, std::uint8_t port) {
  return is_soft(pd) ? soft::create_ah_from_wc(pd, completion, grh, port)
                     : FAIRLEAD_FORWARD(ibv_create_ah_from_wc, pd, completion, grh, port);
}

int ibv_destroy_ah(ibv_ah* ah) { return is_soft(ah) ? soft::destroy_ah(ah) : FAIRLEAD_FORWARD(ibv_destroy_ah, ah); }

int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid) {
  return is_soft(qp) ? soft::attach_mcast(qp, gid, lid) : FAIRLEAD_FORWARD(ibv_attach_mcast, qp, gid, lid);
}

int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid) {
  return is_soft(qp) ? soft::detach_mcast(qp, gid, lid) : FAIRLEAD_FORWARD(ibv_detach_mcast, qp, gid, lid);
}

}  // extern "C"
