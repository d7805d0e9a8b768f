#include "verbs/soft/qp/path.h"

#include <fmt/format.h>

#include <cerrno>

#include "verbs/soft/observe/port_errno.h"
#include "verbs/soft/port/frame/lanes.h"
#include "verbs/soft/port/interfaces.h"
#include "verbs/soft/progress/context.h"
#include "verbs/soft/queues/device_base.h"

namespace fairlead::soft {
namespace {

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;

int refuse_port(const Status& status, std::string& why) {
  why = status.message();
  return port_errno(status, EINVAL);
}

}  // namespace

int prepare_path(DeviceBase& device, const ibv_ah_attr& vector, std::string& why) {
  if (vector.is_global == 0) return 0;  // resolve_path() refuses it
  const Status status = device.bind_port(vector.grh.sgid_index);
  return status.ok() ? 0 : refuse_port(status, why);
}

int resolve_path(DeviceBase& device, const ibv_ah_attr& vector, std::uint64_t spread, std::uint32_t peer_qpn,
                 Path& path, std::string& why) {
  if (vector.is_global == 0) {
    why = "ah_attr.is_global must be 1: RoCE addresses peers by GID";
    return EINVAL;
  }
  const Gid peer = Gid::from_verbs(vector.grh.dgid);
  auto slot = device.port_of_gid(vector.grh.sgid_index);
  if (!slot) return refuse_port(slot.error(), why);
  PacketPort& port = *(*slot)->port;
  const ibv_gid_entry sender = device.gid(vector.grh.sgid_index);
  const auto take = [&](const Route& route, std::uint32_t max_mtu) {
    path = {*slot, device.progress().meet(**slot, peer), route, max_mtu};
    path.route.urgent = vector.sl != 0;
    if (route.apart != nullptr) (*slot)->urgent_way = route.apart;
    return 0;
  };
  if (sender.gid_type == IBV_GID_TYPE_ROCE_V1) {
    const auto route = port.make_v1_route(Gid::from_verbs(sender.gid), peer, vector.grh.flow_label,
                                          vector.grh.traffic_class, vector.grh.hop_limit);
    if (!route) {
      why = fmt::format(
          "sgid_index {} is for RoCE v1, by which {} cannot be found from {}; use a GID of that family, "
          "or one that is link-local and made of an Ethernet address",
          vector.grh.sgid_index, to_string(peer), to_string(port.address()));
      return EAFNOSUPPORT;
    }
    return take(*route, port.max_v1_mtu());
  }
  const Gid& own = port.address();
  if (peer.is_ipv4() != own.is_ipv4()) {
    why = fmt::format("dgid {} is not of the family of sgid_index {}, {}; use a GID of the same", to_string(peer),
                      vector.grh.sgid_index, to_string(own));
    return EAFNOSUPPORT;
  }
  const std::uint32_t label = vector.grh.flow_label;
  const std::uint32_t flow = label != 0 ? ibv_flow_label_to_udp_sport(label)
                                        : flow_toward(static_cast<std::uint32_t>((spread * kGolden) >> 40), peer_qpn);
  const Route route = port.make_route(peer, flow, vector.grh.traffic_class, vector.grh.hop_limit);
  if (route.error != 0) {
    why = cannot_tell_host(peer, route.error);
    return route.error;
  }
  return take(route, port.max_mtu());
}

}  // namespace fairlead::soft
