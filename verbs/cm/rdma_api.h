// The calls of librdmacm, served by softroce: what rdma_<name> is called for a program that the drop-in serves.
//
// Semantics, errno and thread-safety are those of the man page of rdma_<name>; what differs is in
// docs/connection_management.md.
#pragma once

#include <rdma/rdma_cma.h>

#include <cstddef>
#include <cstdint>

namespace fairlead::cm::api {

// rdma_events.cc
rdma_event_channel* create_event_channel();
void destroy_event_channel(rdma_event_channel* channel);
int get_cm_event(rdma_event_channel* channel, rdma_cm_event** event);
int ack_cm_event(rdma_cm_event* event);
const char* event_str(rdma_cm_event_type event);
[[nodiscard]] int migrate_id(rdma_cm_id* id, rdma_event_channel* channel);

// rdma_ids.cc
int create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space space);
int destroy_id(rdma_cm_id* id);
int create_ep(rdma_cm_id** id, rdma_addrinfo* info, ibv_pd* pd, ibv_qp_init_attr* attr);
void destroy_ep(rdma_cm_id* id);
int set_option(rdma_cm_id* id, int level, int name, void* value, std::size_t length);
ibv_context** get_devices(int* count);
void free_devices(ibv_context** list);

// rdma_addresses.cc
int bind_addr(rdma_cm_id* id, sockaddr* address);
int resolve_addr(rdma_cm_id* id, sockaddr* source, sockaddr* destination, int timeout_ms);
int resolve_route(rdma_cm_id* id, int timeout_ms);
__be16 get_src_port(rdma_cm_id* id);
__be16 get_dst_port(rdma_cm_id* id);

// rdma_addrinfo.cc
int getaddrinfo(const char* node, const char* service, const rdma_addrinfo* hints, rdma_addrinfo** result);
void freeaddrinfo(rdma_addrinfo* info);

// rdma_qps.cc
int create_qp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attr);
int create_qp_ex(rdma_cm_id* id, ibv_qp_init_attr_ex* attr);
void destroy_qp(rdma_cm_id* id);
int create_srq(rdma_cm_id* id, ibv_pd* pd, ibv_srq_init_attr* attr);
int create_srq_ex(rdma_cm_id* id, ibv_srq_init_attr_ex* attr);
void destroy_srq(rdma_cm_id* id);
int init_qp_attr(rdma_cm_id* id, ibv_qp_attr* attr, int* mask);

// rdma_connections.cc
int listen(rdma_cm_id* id, int backlog);
int get_request(rdma_cm_id* listener, rdma_cm_id** id);
int connect(rdma_cm_id* id, rdma_conn_param* param);
int establish(rdma_cm_id* id);
int accept(rdma_cm_id* id, rdma_conn_param* param);
int reject(rdma_cm_id* id, const void* private_data, std::uint8_t length);
int notify(rdma_cm_id* id, ibv_event_type event);
int disconnect(rdma_cm_id* id);

// rdma_absent.cc: multicast and enhanced connection establishment
int join_multicast(rdma_cm_id* id, sockaddr* address, void* context);
int join_multicast_ex(rdma_cm_id* id, rdma_cm_join_mc_attr_ex* attr, void* context);
int leave_multicast(rdma_cm_id* id, sockaddr* address);
int set_local_ece(rdma_cm_id* id, ibv_ece* ece);
int get_remote_ece(rdma_cm_id* id, ibv_ece* ece);

}  // namespace fairlead::cm::api
