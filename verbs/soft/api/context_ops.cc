// The operations that verbs.h calls inline, through a context.
#include <cerrno>

#include "fairlead/log.h"
#include "verbs/soft/api/api.h"
#include "verbs/soft/api/fill_known.h"
#include "verbs/soft/device/device.h"

namespace fairlead::soft {
namespace {

int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attr, std::size_t size) {
  ibv_port_attr all{};
  const int error = api::query_port(context, port, &all);
  if (error == 0) api::fill_known(attr, size, all);
  return error;
}

// Programs print a bare number for this one, so the reason is said aloud.
ibv_xrcd* open_xrcd(ibv_context*, ibv_xrcd_init_attr*) {
  log(LogLevel::kWarning,
      "softroce: ibv_open_xrcd: the extended reliable connected transport (XRC) is not supported; use RC queue pairs "
      "with a shared receive queue");
  errno = EOPNOTSUPP;
  return nullptr;
}

}  // namespace

void set_context_ops(verbs_context& device, Profile profile) noexcept {
  ibv_context_ops& basic = device.context.ops;
  basic.post_send = &api::post_send;
  basic.post_recv = &api::post_recv;
  basic.poll_cq = &api::poll_cq;
  basic.req_notify_cq = &api::req_notify_cq;
  basic.post_srq_recv = &api::post_srq_recv;
  basic.alloc_mw = &api::alloc_mw;
  basic.dealloc_mw = &api::dealloc_mw;
  basic.bind_mw = &api::bind_mw;

  device.sz = sizeof(verbs_context);
  device.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  device.query_port = &query_port;
  device.query_device_ex = &api::query_device_ex;
  device.create_srq_ex = &api::create_srq_ex;
  device.get_srq_num = &api::get_srq_num;
  device.open_xrcd = &open_xrcd;
  if (profile == Profile::kPvrdma) return;
  device.create_qp_ex = &api::create_qp_ex;
  device.create_cq_ex = &api::create_cq_ex;
  device.modify_cq = &api::modify_cq;
  device.query_rt_values = &api::query_rt_values;
  device.alloc_null_mr = &api::alloc_null_mr;
  device.alloc_dm = &api::alloc_dm;
  device.free_dm = &api::free_dm;
  device.reg_dm_mr = &api::reg_dm_mr;
  device.advise_mr = &api::advise_mr;
  device.alloc_td = &api::alloc_td;
  device.dealloc_td = &api::dealloc_td;
  device.alloc_parent_domain = &api::alloc_parent_domain;
}

}  // namespace fairlead::soft
