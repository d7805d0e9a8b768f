// VerbsApi: the verbs calls through one table, so that no transport code knows which verbs it uses.
//
// Filled by verbs/provider/system_api (the system's libibverbs.so.1, opened with dlopen) or by verbs/soft (softroce).
// Types are those of <infiniband/verbs.h>. Only exported functions stand here: ibv_post_send, ibv_post_recv,
// ibv_poll_cq and ibv_req_notify_cq are inline in verbs.h and go through qp->context->ops and cq->context->ops, as
// verbs.h does; call them as usual. Semantics, errno and thread-safety: the man page of each call.
//
// Wherever a table entry is null the feature is absent (the pvrdma baseline has all entries of this table).
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace fairlead::verbs {

/// Numbers that change with each.
struct DeviceActivity {
  std::uint64_t moves = 0;   // packets were taken in
  std::uint64_t placed = 0;  // a peer's WRITE was placed that no completion tells of
};

struct VerbsApi {
  const char* source = "";  // "libibverbs.so.1" or "softroce", for messages

  ibv_device** (*get_device_list)(int* count);
  void (*free_device_list)(ibv_device** list);
  const char* (*get_device_name)(ibv_device* device);
  ibv_context* (*open_device)(ibv_device* device);
  int (*close_device)(ibv_context* context);
  int (*query_device)(ibv_context* context, ibv_device_attr* attr);
  /// Zero `attr` first: libibverbs' exported symbol fills only the fields of the old structure (link_layer included).
  int (*query_port)(ibv_context* context, std::uint8_t port, ibv_port_attr* attr);
  int (*query_gid)(ibv_context* context, std::uint8_t port, int index, ibv_gid* gid);
  /// 0: fills entry (gid, gid_type IBV_GID_TYPE_ROCE_V2..., ndev_ifindex); else errno, ENODATA for an empty index.
  int (*query_gid_ex)(ibv_context* context, std::uint32_t port, std::uint32_t index, ibv_gid_entry* entry);

  ibv_pd* (*alloc_pd)(ibv_context* context);
  int (*dealloc_pd)(ibv_pd* pd);
  ibv_mr* (*reg_mr)(ibv_pd* pd, void* address, std::size_t length, int access);
  int (*dereg_mr)(ibv_mr* mr);
  /// Memory of another device, as a dma-buf; null in libibverbs before 34.
  ibv_mr* (*reg_dmabuf_mr)(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd,
                           int access);

  ibv_comp_channel* (*create_comp_channel)(ibv_context* context);
  int (*destroy_comp_channel)(ibv_comp_channel* channel);
  ibv_cq* (*create_cq)(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel, int comp_vector);
  int (*destroy_cq)(ibv_cq* cq);
  /// Sets CQ moderation (ibv_modify_cq); null or EOPNOTSUPP where the device has none.
  int (*modify_cq)(ibv_cq* cq, ibv_modify_cq_attr* attr);
  int (*get_cq_event)(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context);
  void (*ack_cq_events)(ibv_cq* cq, unsigned int count);

  ibv_qp* (*create_qp)(ibv_pd* pd, ibv_qp_init_attr* attr);
  int (*modify_qp)(ibv_qp* qp, ibv_qp_attr* attr, int mask);
  int (*query_qp)(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init);
  int (*destroy_qp)(ibv_qp* qp);

  int (*get_async_event)(ibv_context* context, ibv_async_event* event);
  void (*ack_async_event)(ibv_async_event* event);

  /// Not of libibverbs: why a call of this thread failed, in words, taken once; empty where nothing more is known.
  std::string (*take_refusal)();
  /// Not of libibverbs: what the device has done where that is this process's work. It stays as it is where the device
  /// works by itself.
  DeviceActivity (*activity)(ibv_context* context);
};

}  // namespace fairlead::verbs
