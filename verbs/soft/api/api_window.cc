// Verbs on memory windows.
#include "verbs/soft/api/api.h"
#include "verbs/soft/api/objects.h"
#include "verbs/soft/observe/refuse.h"
#include "verbs/soft/rc/memory_windows.h"

namespace fairlead::soft::api {

ibv_mw* alloc_mw(ibv_pd* base, ibv_mw_type type) {
  Device& device = impl(base->context);
  if (device.profile() == Profile::kPvrdma) return refuse(EOPNOTSUPP, "ibv_alloc_mw: profile pvrdma has no windows");
  if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) {
    return refuse(EINVAL,
                  fmt::format("ibv_alloc_mw: type {}; legal: IBV_MW_TYPE_1, IBV_MW_TYPE_2", static_cast<int>(type)));
  }
  return make_or_errno("ibv_alloc_mw", [&]() -> ibv_mw* {
    auto window = std::make_unique<Mw>();
    window->window = true;
    window->domain = &impl(base).root();
    const DomainLock lock(device.domain());
    if (!device.domain().regions.add(*window)) {
      return refuse(ENOMEM, fmt::format("ibv_alloc_mw: all {} windows of the device, or all {} keys, are in use; "
                                        "deallocate windows",
                                        MrTable::kMaxWindows, MrTable::kMaxKeys));
    }
    static_cast<ibv_mw&>(*window) = {base->context, base, window->key, window->key, type};
    ++impl(base).users;
    return window.release();
  });
}

int dealloc_mw(ibv_mw* base) {
  Mw& window = impl(base);
  Domain& domain = impl(window.context).domain();
  const DomainLock lock(domain);
  unbind_window(domain, window);
  domain.regions.remove(window);
  --impl(window.pd).users;
  delete &window;
  return 0;
}

int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
  if (mw->type != IBV_MW_TYPE_1) {
    return refuse_with(EINVAL, "ibv_bind_mw: the window is of type 2; post IBV_WR_BIND_MW");
  }
  ibv_send_wr wr{};
  wr.wr_id = bind->wr_id;
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = bind->send_flags;
  wr.bind_mw.mw = mw;
  wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
  wr.bind_mw.bind_info = bind->bind_info;
  ibv_send_wr* bad = nullptr;
  const int error = post_send(qp, &wr, &bad);
  if (error == 0) mw->rkey = wr.bind_mw.rkey;
  return error;
}

}  // namespace fairlead::soft::api
