#include "verbs/discovery/gid_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "verbs/soft/port/interfaces.h"

namespace fairlead::verbs {
namespace {

int family_rank(const Address& address) noexcept {
  if (address.is_ipv4()) return 0;
  return address.is_link_local() ? 2 : 1;
}

const char* state_name(ibv_port_state state) noexcept {
  switch (state) {
    case IBV_PORT_DOWN:
      return "down";
    case IBV_PORT_INIT:
      return "initialising";
    case IBV_PORT_ARMED:
      return "armed";
    case IBV_PORT_ACTIVE:
      return "active";
    case IBV_PORT_ACTIVE_DEFER:
      return "active (deferred)";
    default:
      return "in no known state";
  }
}

// Why no GID of this port can be used at all; empty if one may.
std::string port_refusal(const PortFacts& port) {
  if (port.transport != IBV_TRANSPORT_IB) {
    return fmt::format("{} is not a RoCE device (transport type {})", port.device, static_cast<int>(port.transport));
  }
  if (port.state != IBV_PORT_ACTIVE) {
    return fmt::format("port {} of {} is {}, not active: bring its network interface up", port.port, port.device,
                       state_name(port.state));
  }
  if (port.link_layer != IBV_LINK_LAYER_ETHERNET) {
    return fmt::format("the link layer of port {} of {} is {}, not Ethernet", port.port, port.device,
                       port.link_layer == IBV_LINK_LAYER_INFINIBAND ? "InfiniBand" : "unknown");
  }
  return {};
}

struct Ranked {
  bool usable = false;
  int rank = 0;  // lower is better
  std::string words;
};

Ranked refuse(std::string words) { return {false, 0, std::move(words)}; }

// Link-local addresses of several interfaces may be equal.
bool is_source(const GidFacts& gid, const Route& route) noexcept {
  const bool other_interface = gid.interface != 0 && route.interface != 0 && gid.interface != route.interface;
  return gid.address == route.source && !(gid.address.is_link_local() && other_interface);
}

Ranked rank_for_same_host(const Address& address, const Route& route) {
  const int family = family_rank(address);
  if (address.is_loopback()) return {true, family, "loopback, and the peer is on this host"};
  if (address == route.source) return {true, 10 + family, "our address toward the peer, which is on this host"};
  return {true, 20 + family, "the peer is on this host and the device may loop back"};
}

Ranked rank_for_remote(const GidFacts& gid, const Route& route) {
  const Address& address = gid.address;
  if (address.is_loopback()) {
    return refuse(fmt::format("a loopback address, but {} is another host", route.peer.to_string()));
  }
  if (address.is_ipv4() != route.peer.is_ipv4()) {
    return refuse(
        fmt::format("{}, but the peer is reached by {}", family_name(address), route.peer.is_ipv4() ? "IPv4" : "IPv6"));
  }
  if (is_source(gid, route)) {
    return {true, family_rank(address), fmt::format("our address toward {}", route.peer.to_string())};
  }
  if (gid.interface != 0 && gid.interface == route.interface) {
    return {true, 10 + family_rank(address), fmt::format("on the interface that leads to {}", route.peer.to_string())};
  }
  return refuse(fmt::format("the route to {} starts at {}, not here; set gid_index to use it all the same",
                            route.peer.to_string(), route.source.to_string()));
}

// Bytes of IP; 0: unknown. The kernel's route is not that of a GID on another interface, nor of a device with a wire of
// its own.
std::uint32_t largest_packet(const GidFacts& gid, const Route* route) noexcept {
  const bool same_way = route != nullptr && route->mtu != 0 && gid.interface != 0 && gid.interface == route->interface;
  return same_way && (gid.mtu == 0 || route->mtu < gid.mtu) ? route->mtu : gid.mtu;
}

// Why no packet can leave from this GID; empty if one may.
std::string gid_refusal(const PortFacts& port, const GidFacts& gid, const Route* route) {
  if (gid.interface == 0 && gid.address.is_link_local()) {
    return "link-local without an interface: nothing can be sent from it";
  }
  if (path_mtu(port, gid, route) == 0) {
    return fmt::format("its interface, or the route, carries {} bytes, too little for RoCE: raise the MTU to 340",
                       largest_packet(gid, route));
  }
  return {};
}

Ranked rank(const PortFacts& port, const GidFacts& gid, const Route* route) {
  if (gid.type != IBV_GID_TYPE_ROCE_V2) return refuse("RoCE v1 (no IP header), which gid_index must ask for");
  if (std::string refusal = gid_refusal(port, gid, route); !refusal.empty()) return refuse(std::move(refusal));
  if (route == nullptr) {
    return {true, family_rank(gid.address), gid.address.is_loopback() ? "usable toward peers on this host" : "usable"};
  }
  return route->same_host() ? rank_for_same_host(gid.address, *route) : rank_for_remote(gid, *route);
}

// A configured index overrides the ranking, not the physics.
Ranked rank_configured(const GidFacts& gid, const Route* route) {
  if (route != nullptr && !route->same_host() && gid.address.is_loopback()) {
    return refuse(fmt::format("a loopback address, but {} is another host", route->peer.to_string()));
  }
  if (gid.type != IBV_GID_TYPE_ROCE_V2) return {true, 0, "configured by gid_index: RoCE v1, as the peer's must be"};
  return {true, 0, "configured by gid_index"};
}

std::string list_indices(const PortFacts& port) {
  std::string text;
  for (const GidFacts& gid : port.gids) text += fmt::format("{}{}", text.empty() ? "" : ", ", gid.index);
  return text.empty() ? "none" : text;
}

std::string lost_to(const GidFacts& loser, const GidFacts& winner, bool same_rank) {
  if (same_rank) return fmt::format("usable, but GID {} has the lower index", winner.index);
  if (family_rank(loser.address) != family_rank(winner.address)) {
    return fmt::format("usable, but GID {} ranks before it: {} before {}", winner.index, family_name(winner.address),
                       family_name(loser.address));
  }
  return fmt::format("usable, but GID {} ranks before it", winner.index);
}

}  // namespace

const char* family_name(const Address& address) noexcept {
  constexpr const char* kNames[] = {"IPv4-mapped", "global IPv6", "link-local"};
  return kNames[family_rank(address)];
}

std::uint32_t path_mtu(const PortFacts& port, const GidFacts& gid, const Route* route,
                       std::uint32_t configured) noexcept {
  std::uint32_t mtu = configured == 0 ? port.active_mtu : std::min(configured, port.active_mtu);
  const std::uint32_t packet = largest_packet(gid, route);
  return packet == 0 ? mtu : std::min(mtu, soft::largest_path_mtu(packet, !gid.address.is_ipv4()));
}

GidChoice choose_gid(const PortFacts& port, const Route* route, int configured_index) {
  GidChoice choice;
  const std::string refusal = port_refusal(port);
  std::vector<Ranked> ranks;
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < port.gids.size(); ++i) {
    const GidFacts& gid = port.gids[i];
    if (!refusal.empty()) {
      ranks.push_back(refuse(refusal));
    } else if (configured_index < 0) {
      ranks.push_back(rank(port, gid, route));
    } else if (gid.index == configured_index) {
      ranks.push_back(rank_configured(gid, route));
    } else {
      ranks.push_back(refuse(fmt::format("gid_index {} is configured", configured_index)));
    }
    if (ranks[i].usable && (!best || ranks[i].rank < ranks[*best].rank)) best = i;
  }

  for (std::size_t i = 0; i < port.gids.size(); ++i) {
    const bool chosen = best == i;
    std::string reason = ranks[i].words;
    if (chosen) {
      reason = fmt::format("chosen: {}, {}", family_name(port.gids[i].address), ranks[i].words);
    } else if (best && ranks[i].usable) {
      reason = lost_to(port.gids[i], port.gids[*best], ranks[i].rank == ranks[*best].rank);
    }
    choice.verdicts.push_back({port.gids[i], ranks[i].usable, chosen, std::move(reason)});
  }

  if (best) {
    choice.chosen = port.gids[*best];
    choice.reason = choice.verdicts[*best].reason;
    return choice;
  }
  if (!refusal.empty()) {
    choice.reason = refusal;
    return choice;
  }
  choice.reason = fmt::format("no GID of {} port {} can be used", port.device, port.port);
  if (configured_index >= 0) {
    const bool present = std::any_of(port.gids.begin(), port.gids.end(),
                                     [&](const GidFacts& gid) { return gid.index == configured_index; });
    if (!present) {
      choice.reason = fmt::format("GID index {} of {} port {} is empty; used indices: {}", configured_index,
                                  port.device, port.port, list_indices(port));
      return choice;
    }
  }
  for (const GidVerdict& verdict : choice.verdicts) {
    if (configured_index >= 0 && verdict.gid.index != configured_index) continue;
    choice.reason += fmt::format("; GID {} {}: {}", verdict.gid.index, verdict.gid.address.to_string(), verdict.reason);
  }
  return choice;
}

}  // namespace fairlead::verbs
