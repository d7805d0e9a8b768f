// From the structures of verbs.h to softroce's objects: every one of them begins with, or contains, its verbs part.
#pragma once

#include <cstddef>

#include "verbs/soft/ah.h"
#include "verbs/soft/cq.h"
#include "verbs/soft/device.h"
#include "verbs/soft/qp.h"
#include "verbs/soft/srq.h"

namespace fairlead::soft {

[[nodiscard]] inline Device& impl(ibv_context* context) noexcept {
  // Unlike verbs_get_ctx this need not ask whether the context is extended: all of ours are.
  auto* bytes = reinterpret_cast<std::byte*>(context) - offsetof(verbs_context, context);
  return static_cast<Device&>(*reinterpret_cast<verbs_context*>(bytes));
}
[[nodiscard]] inline Pd& impl(ibv_pd* pd) noexcept { return static_cast<Pd&>(*pd); }
[[nodiscard]] inline Ah& impl(ibv_ah* ah) noexcept { return static_cast<Ah&>(*ah); }
[[nodiscard]] inline Mr& impl(ibv_mr* mr) noexcept { return static_cast<Mr&>(*mr); }
[[nodiscard]] inline Mw& impl(ibv_mw* mw) noexcept { return static_cast<Mw&>(*mw); }
[[nodiscard]] inline CompChannel& impl(ibv_comp_channel* channel) noexcept {
  return static_cast<CompChannel&>(*channel);
}
// ibv_cq_ex begins with the fields of ibv_cq, ibv_qp_ex with an ibv_qp.
[[nodiscard]] inline Cq& impl(ibv_cq* cq) noexcept { return static_cast<Cq&>(*reinterpret_cast<ibv_cq_ex*>(cq)); }
[[nodiscard]] inline Cq& impl(ibv_cq_ex* cq) noexcept { return static_cast<Cq&>(*cq); }
[[nodiscard]] inline Srq& impl(ibv_srq* srq) noexcept { return static_cast<Srq&>(*srq); }
[[nodiscard]] inline Qp& impl(ibv_qp* qp) noexcept { return static_cast<Qp&>(*reinterpret_cast<ibv_qp_ex*>(qp)); }
[[nodiscard]] inline Qp& impl(ibv_qp_ex* qp) noexcept { return static_cast<Qp&>(*qp); }

}  // namespace fairlead::soft
