// Verbs on address handles and multicast groups.
#include "verbs/soft/api/api.h"
#include "verbs/soft/api/objects.h"
#include "verbs/soft/observe/refuse.h"
#include "verbs/soft/wire/grh.h"

namespace fairlead::soft::api {
namespace {

constexpr std::uint8_t kMostHops = 0xff;

int refuse_multicast(const char* verb) {
  return refuse_with(EOPNOTSUPP, fmt::format("{}: multicast is not supported; send to each receiver", verb));
}

}  // namespace

ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  Device& device = impl(pd->context);
  if (attr->port_num != 1)
    return refuse(EINVAL, fmt::format("ibv_create_ah: port_num is {}; it must be 1", attr->port_num));
  return make_or_errno("ibv_create_ah", [&]() -> Ah* {
    auto ah = std::make_unique<Ah>(pd);
    const Gid peer = Gid::from_verbs(attr->grh.dgid);
    std::string why;
    int error = prepare_path(device, *attr, why);
    const DomainLock lock(device.domain());
    if (error == 0) error = resolve_path(device, *attr, GidHash{}(peer), 0, ah->path, why);
    if (error != 0) return refuse(error, fmt::format("ibv_create_ah: {}", why));
    ++impl(pd).users;
    return ah.release();
  });
}

int init_ah_from_wc(ibv_context* context, std::uint8_t port, ibv_wc* completion, ibv_grh* grh, ibv_ah_attr* attr) {
  *attr = {};
  attr->port_num = port;
  attr->dlid = completion->slid;
  attr->sl = completion->sl;
  attr->src_path_bits = completion->dlid_path_bits;
  if ((completion->wc_flags & IBV_WC_GRH) == 0) return 0;
  const auto ends = read_grh(*grh);
  if (!ends) {
    refuse(EINVAL, "ibv_init_ah_from_wc: the 40 bytes before the datagram hold no GRH and no IPv4 header");
    return -1;
  }
  const std::optional<std::uint32_t> index = impl(context).find_gid(ends->destination, ends->version);
  if (!index) {
    refuse(EINVAL, fmt::format("ibv_init_ah_from_wc: {} is no GID of this device", to_string(ends->destination)));
    return -1;
  }
  attr->is_global = 1;
  attr->grh.dgid = ends->source.to_verbs();
  attr->grh.sgid_index = static_cast<std::uint8_t>(*index);
  attr->grh.flow_label = ends->flow_label;
  attr->grh.traffic_class = ends->traffic_class;
  attr->grh.hop_limit = kMostHops;
  return 0;
}

ibv_ah* create_ah_from_wc(ibv_pd* pd, ibv_wc* completion, ibv_grh* grh, std::uint8_t port) {
  ibv_ah_attr attr;
  return init_ah_from_wc(pd->context, port, completion, grh, &attr) == 0 ? create_ah(pd, &attr) : nullptr;
}

int destroy_ah(ibv_ah* base) {
  Ah& ah = impl(base);
  const DomainLock lock(impl(ah.context).domain());
  --impl(ah.pd).users;
  delete &ah;
  return 0;
}

int attach_mcast(ibv_qp*, const ibv_gid*, std::uint16_t) { return refuse_multicast("ibv_attach_mcast"); }
int detach_mcast(ibv_qp*, const ibv_gid*, std::uint16_t) { return refuse_multicast("ibv_detach_mcast"); }

}  // namespace fairlead::soft::api
