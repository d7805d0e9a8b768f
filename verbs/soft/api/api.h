// Every verb that softroce implements, as a function.
//
// VerbsApi's table, the operations of a context (verbs.h calls those inline) and the drop-in library's C symbols all
// lead here. Semantics, errno and thread-safety are those of the man page of ibv_<name>. What the device lacks is
// refused with EOPNOTSUPP and a reason in the log. The caller has made sure that the objects are softroce's (is_soft).
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace fairlead::soft::api {

/// Whether an object belongs to softroce. Any thread.
[[nodiscard]] bool is_soft(const ibv_device* device) noexcept;
[[nodiscard]] bool is_soft(const ibv_context* context) noexcept;

// api_device.cc and soft.cc
ibv_device** get_device_list(int* count);
void free_device_list(ibv_device** list);
const char* get_device_name(ibv_device* device);
__be64 get_device_guid(ibv_device* device);
ibv_context* open_device(ibv_device* device);
/// Null with EOPNOTSUPP where the descriptor is a softroce context's: its objects cannot be named from outside.
ibv_context* import_device(int cmd_fd, bool& ours);
/// The environment's device, at this address. Refused where the environment names another.
ibv_context* open_device_at(const std::string& address);
int close_device(ibv_context* context);
int query_device(ibv_context* context, ibv_device_attr* attr);
int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attr,
                    std::size_t size);
int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attr);
int query_gid(ibv_context* context, std::uint8_t port, int index, ibv_gid* gid);
int query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index, ibv_gid_entry* entry);
int query_pkey(ibv_context* context, std::uint8_t port, int index, std::uint16_t* pkey);  // network byte order
int query_rt_values(ibv_context* context, ibv_values_ex* values);
int get_async_event(ibv_context* context, ibv_async_event* event);
void ack_async_event(ibv_async_event* event);

// api_memory.cc, api_window.cc, api_device_memory.cc
ibv_pd* alloc_pd(ibv_context* context);
int dealloc_pd(ibv_pd* pd);
ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, int access);
ibv_mr* reg_mr_iova(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, int access);
int rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t length, int access);
int dereg_mr(ibv_mr* mr);
ibv_mr* alloc_null_mr(ibv_pd* pd);
ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type);
int dealloc_mw(ibv_mw* mw);
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);
ibv_mr* reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd, int access);
ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attr);
int free_dm(ibv_dm* dm);
ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, std::uint64_t offset, std::size_t length, unsigned access);
int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* list, std::uint32_t count);

// api_cq.cc
ibv_comp_channel* create_comp_channel(ibv_context* context);
int destroy_comp_channel(ibv_comp_channel* channel);
ibv_cq* create_cq(ibv_context* context, int cqe, void* user, ibv_comp_channel* channel, int comp_vector);
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* init);
int resize_cq(ibv_cq* cq, int cqe);
int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr);
int destroy_cq(ibv_cq* cq);
int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** user);
void ack_cq_events(ibv_cq* cq, unsigned int count);
int poll_cq(ibv_cq* cq, int count, ibv_wc* completions);
int req_notify_cq(ibv_cq* cq, int solicited_only);

// api_srq.cc
ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* init);
ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* init);
int modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask);
int query_srq(ibv_srq* srq, ibv_srq_attr* attr);
int get_srq_num(ibv_srq* srq, std::uint32_t* number);
int destroy_srq(ibv_srq* srq);
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad);

// api_qp.cc
ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* init);
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* init);
ibv_qp_ex* qp_to_qp_ex(ibv_qp* qp);
int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask);
int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init);
int query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode opcode, std::uint32_t flags);
int destroy_qp(ibv_qp* qp);
int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad);
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad);

// api_ah.cc
ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr);
int init_ah_from_wc(ibv_context* context, std::uint8_t port, ibv_wc* completion, ibv_grh* grh, ibv_ah_attr* attr);
ibv_ah* create_ah_from_wc(ibv_pd* pd, ibv_wc* completion, ibv_grh* grh, std::uint8_t port);
int destroy_ah(ibv_ah* ah);
int attach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid);
int detach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid);

// api_domain.cc: thread domains and parent domains
ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* init);
int dealloc_td(ibv_td* td);
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* init);

}  // namespace fairlead::soft::api
