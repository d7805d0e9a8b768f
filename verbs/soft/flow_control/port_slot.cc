#include "verbs/soft/flow_control/port_slot.h"

namespace fairlead::soft {
namespace {

constexpr std::size_t kKnownPeers = 1024;
// For each that comes: so those that nobody holds stay few beside those that somebody does.
constexpr int kLooksAtIdle = 8;

}  // namespace

Flow* PortSlot::find_flow(const Gid& peer) noexcept {
  const auto found = peers_.find(peer);
  return found == peers_.end() ? nullptr : &found->second->flow;
}

KnownPeer& PortSlot::know(const Gid& peer) {
  auto found = peers_.find(peer);
  if (found == peers_.end()) {
    forget_idle();
    found = peers_.emplace(peer, std::make_unique<KnownPeer>(*this, peer, port->peer_window())).first;
  }
  KnownPeer& known = *found->second;
  known.known.unlink();
  known_.push_back(known.known);
  return known;
}

PeerHold PortSlot::meet(const Gid& peer) {
  KnownPeer& known = know(peer);
  known.flow.meet();
  return PeerHold(known);
}

void PortSlot::forget_idle() noexcept {
  for (int looks = 0; peers_.size() >= kKnownPeers && looks < kLooksAtIdle; ++looks) {
    KnownPeer& oldest = *known_.front();
    oldest.known.unlink();
    if (oldest.is_idle()) {
      const Gid address = oldest.flow.peer();
      peers_.erase(address);
    } else {
      known_.push_back(oldest.known);
    }
  }
}

}  // namespace fairlead::soft
