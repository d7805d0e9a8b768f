// The verbs that this device does not offer yet, each refused by name.
#include "verbs/soft/api.h"
#include "verbs/soft/refuse.h"

namespace fairlead::soft::api {
namespace {

int absent(std::string_view verb) { return refuse_with(EOPNOTSUPP, fmt::format("{} is not supported", verb)); }
std::nullptr_t no(std::string_view verb) { return refuse(EOPNOTSUPP, fmt::format("{} is not supported", verb)); }

}  // namespace

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
