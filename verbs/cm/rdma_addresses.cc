#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "verbs/cm/rdma_calls.h"

namespace fairlead::cm::api {
namespace {

// Ports are a connection's label here, not a resource of the host, so any that is unlikely to repeat serves.
std::uint16_t ephemeral_port() {
  std::random_device random;
  return static_cast<std::uint16_t>(49152 + random() % 16384);
}

int bind_to(Id& id, const IpEndpoint& wanted, bool ipv6) {
  const IpEndpoint own{wanted.address, wanted.port != 0 ? wanted.port : ephemeral_port()};
  if (own.address.is_null()) {
    to_sockaddr(own, ipv6, id.route.addr.src_storage);
    return 0;
  }
  const auto place = place_at(own.address);
  if (!place) {
    return refuse(errno, fmt::format("no softroce device has the address {}; its own and this host's are possible",
                                     soft::to_string(own.address)));
  }
  id.place(*place, own);
  return 0;
}

}  // namespace

int bind_addr(rdma_cm_id* id, sockaddr* address) {
  const auto wanted = address != nullptr ? from_sockaddr(*address) : std::nullopt;
  if (!wanted) return refuse(EAFNOSUPPORT, "rdma_bind_addr: the address is neither IPv4 nor IPv6");
  if (impl(id).where.device != nullptr) return refuse(EINVAL, "rdma_bind_addr: the identifier is bound already");
  return bind_to(impl(id), *wanted, address->sa_family == AF_INET6);
}

int resolve_addr(rdma_cm_id* base, sockaddr* source, sockaddr* destination, int) {
  Id& id = impl(base);
  const auto peer = destination != nullptr ? from_sockaddr(*destination) : std::nullopt;
  if (!peer) return refuse(EAFNOSUPPORT, "rdma_resolve_addr: the destination is neither IPv4 nor IPv6");
  const auto own = source != nullptr ? from_sockaddr(*source) : std::nullopt;
  if (own && id.where.device == nullptr && bind_to(id, *own, source->sa_family == AF_INET6) != 0) return -1;
  IpEndpoint target = *peer;
  // As for sockets, "any" is this host; of its addresses, our own.
  if (target.address.is_null()) target.address = Gid::from_ipv4(INADDR_LOOPBACK);
  if (id.where.device == nullptr) {
    const auto place = place_toward(target.address);
    if (!place) {
      return refuse(errno, fmt::format("no softroce device has a way to {}", soft::to_string(target.address)));
    }
    const std::uint16_t port = id.source().port;
    id.place(*place, {Gid{}, port != 0 ? port : ephemeral_port()});
  }
  id.set_destination(target);
  id.push(RDMA_CM_EVENT_ADDR_RESOLVED);
  return complete(id);
}

int resolve_route(rdma_cm_id* base, int) {
  Id& id = impl(base);
  if (id.where.device == nullptr) return refuse(EINVAL, "rdma_resolve_route: resolve the address first");
  if (const int error = id.where.device->bind_port(id.where.gid_index); error != 0) {
    return refuse(error, "rdma_resolve_route: the port of the address is not ours");
  }
  ibv_sa_path_rec& path = id.path;
  path.sgid = id.route.addr.addr.ibaddr.sgid;
  path.dgid = id.route.addr.addr.ibaddr.dgid;
  path.hop_limit = 64;
  path.traffic_class = id.type_of_service;
  path.reversible = 1;
  path.numb_path = 1;
  path.pkey = 0xffff;
  path.mtu_selector = path.rate_selector = path.packet_life_time_selector = 2;  // exactly
  path.mtu = static_cast<std::uint8_t>(id.where.device->path_mtu(id.where.gid_index));
  path.rate = IBV_RATE_56_GBPS;
  path.packet_life_time = static_cast<std::uint8_t>(std::max<int>(id.ack_timeout, 1) - 1);
  id.route.path_rec = &path;
  id.route.num_paths = 1;
  id.push(RDMA_CM_EVENT_ROUTE_RESOLVED);
  return complete(id);
}

__be16 get_src_port(rdma_cm_id* id) { return htons(impl(id).source().port); }
__be16 get_dst_port(rdma_cm_id* id) { return htons(impl(id).destination().port); }

}  // namespace fairlead::cm::api
