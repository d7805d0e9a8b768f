#include "verbs/soft/flow_control/port_slot.h"

namespace fairlead::soft {

Window& PortSlot::peer_window(const Gid& peer) {
  auto& window = peers_[peer];
  if (!window) window = std::make_unique<Window>(port->peer_window());
  return *window;
}

Flow* PortSlot::find_flow(const Gid& peer) noexcept {
  const auto found = flows_.find(peer);
  return found == flows_.end() ? nullptr : found->second.get();
}

bool PortSlot::meet(const Gid& peer) {
  auto& flow = flows_[peer];
  if (flow && flow->met()) return false;
  if (flow) {
    --stranger_count_;
  } else {
    flow = std::make_unique<Flow>(*this, peer);
  }
  flow->meet(peer_window(peer));
  return true;
}

Flow& PortSlot::hear_of(const Gid& peer) {
  auto found = flows_.find(peer);
  if (found == flows_.end()) {
    if (stranger_count_ == kMostStrangers) {
      const Gid oldest = strangers_.front()->peer();
      flows_.erase(oldest);
      --stranger_count_;
    }
    found = flows_.emplace(peer, std::make_unique<Flow>(*this, peer)).first;
    ++stranger_count_;
  }
  Flow& flow = *found->second;
  if (!flow.met()) {
    flow.stranger.unlink();
    strangers_.push_back(flow.stranger);
  }
  return flow;
}

}  // namespace fairlead::soft
