#include "verbs/soft/path.h"

#include <fmt/format.h>

#include <cerrno>

#include "verbs/soft/device.h"
#include "verbs/soft/port/lanes.h"

namespace fairlead::soft {
namespace {

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;

}  // namespace

int resolve_path(Device& device, const ibv_ah_attr& vector, std::uint64_t spread, std::uint32_t peer_qpn, Path& path,
                 std::string& why) {
  if (vector.is_global == 0) {
    why = "ah_attr.is_global must be 1: RoCE addresses peers by GID";
    return EINVAL;
  }
  const Gid peer = Gid::from_verbs(vector.grh.dgid);
  auto slot = device.port_of_gid(vector.grh.sgid_index);
  if (!slot) {
    why = slot.error().message();
    return slot.error().code() == Code::kAlreadyExists ? EADDRINUSE : EINVAL;
  }
  const Gid& own = (*slot)->port->address();
  if (peer.is_ipv4() != own.is_ipv4()) {
    why = fmt::format("dgid {} is not of the family of sgid_index {}, {}; use a GID of the same", to_string(peer),
                      vector.grh.sgid_index, to_string(own));
    return EAFNOSUPPORT;
  }
  const std::uint32_t label = vector.grh.flow_label;
  const std::uint32_t flow = label != 0 ? ibv_flow_label_to_udp_sport(label)
                                        : flow_toward(static_cast<std::uint32_t>((spread * kGolden) >> 40), peer_qpn);
  path.port = *slot;
  path.window = &device.domain().peer_window(**slot, peer);
  path.flow = &device.domain().flow(**slot, peer);
  path.route = (*slot)->port->make_route(peer, flow, vector.grh.traffic_class, vector.grh.hop_limit);
  return 0;
}

}  // namespace fairlead::soft
