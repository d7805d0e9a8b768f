// What softroce's connection management does not have, and says so.
#include "verbs/cm/rdma_calls.h"

namespace fairlead::cm::api {

int join_multicast(rdma_cm_id*, sockaddr*, void*) {
  return refuse(EOPNOTSUPP,
                "rdma_join_multicast: multicast needs an IGMP membership, which UDP ports here do not take");
}

int join_multicast_ex(rdma_cm_id* id, rdma_cm_join_mc_attr_ex*, void* context) {
  return join_multicast(id, nullptr, context);
}

int leave_multicast(rdma_cm_id*, sockaddr*) {
  return refuse(EADDRNOTAVAIL, "rdma_leave_multicast: nothing was joined");
}

// Enhanced connection establishment carries vendors' options; a device without any says none.
int set_local_ece(rdma_cm_id*, ibv_ece*) { return 0; }

int get_remote_ece(rdma_cm_id*, ibv_ece* ece) {
  *ece = {};
  return 0;
}

}  // namespace fairlead::cm::api
