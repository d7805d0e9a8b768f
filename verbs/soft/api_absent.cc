// The verbs that this device does not offer yet, each refused by name.
#include "verbs/soft/api.h"
#include "verbs/soft/refuse.h"

namespace fairlead::soft::api {
namespace {

int absent(std::string_view verb) { return refuse_with(EOPNOTSUPP, fmt::format("{} is not supported", verb)); }
std::nullptr_t no(std::string_view verb) { return refuse(EOPNOTSUPP, fmt::format("{} is not supported", verb)); }

}  // namespace

// api_memory.cc
ibv_mr* reg_mr_iova(ibv_pd*, void*, std::size_t, std::uint64_t, int) { return no("ibv_reg_mr_iova"); }
int rereg_mr(ibv_mr*, int, ibv_pd*, void*, std::size_t, int) {
  absent("ibv_rereg_mr");
  return IBV_REREG_MR_ERR_CMD;
}
ibv_mr* alloc_null_mr(ibv_pd*) { return no("ibv_alloc_null_mr"); }
ibv_mw* alloc_mw(ibv_pd*, ibv_mw_type) { return no("ibv_alloc_mw"); }
int dealloc_mw(ibv_mw*) { return absent("ibv_dealloc_mw"); }
int bind_mw(ibv_qp*, ibv_mw*, ibv_mw_bind*) { return absent("ibv_bind_mw"); }
int advise_mr(ibv_pd*, ibv_advise_mr_advice, std::uint32_t, ibv_sge*, std::uint32_t) { return absent("ibv_advise_mr"); }

// api_ah.cc
ibv_ah* create_ah(ibv_pd*, ibv_ah_attr*) { return no("ibv_create_ah"); }
int init_ah_from_wc(ibv_context*, std::uint8_t, ibv_wc*, ibv_grh*, ibv_ah_attr*) {
  absent("ibv_init_ah_from_wc");
  return -1;
}
ibv_ah* create_ah_from_wc(ibv_pd*, ibv_wc*, ibv_grh*, std::uint8_t) { return no("ibv_create_ah_from_wc"); }
int destroy_ah(ibv_ah*) { return absent("ibv_destroy_ah"); }
int attach_mcast(ibv_qp*, const ibv_gid*, std::uint16_t) { return absent("ibv_attach_mcast"); }
int detach_mcast(ibv_qp*, const ibv_gid*, std::uint16_t) { return absent("ibv_detach_mcast"); }

}  // namespace fairlead::soft::api
