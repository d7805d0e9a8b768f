// What a session hears from its paths: transports' reports, and the set's word that one is in use, lost, gone.
#include <fmt/format.h>

#include "datapath/session/session.h"
#include "fairlead/log.h"

namespace fairlead::datapath {

PathConfig SessionImpl::path_config() {
  PathConfig config;
  config.peer_host = link_.stream().peer_host();
  config.local_host = link_.stream().local_host();
  config.events = this;
  config.peer_timeout = host_->config().peer_timeout;
  return config;
}

void SessionImpl::on_ready(Path& path) noexcept {
  PathSlot* slot = paths_.find(path);
  if (slot == nullptr) return;
  paths_.on_ready(*slot);
  dirty_ = true;
}

void SessionImpl::on_down(Path& path, Code code, std::string_view reason) noexcept {
  PathSlot* slot = paths_.find(path);
  if (slot == nullptr) return;
  paths_.on_down(*slot, code, reason);
  dirty_ = true;
}

void SessionImpl::path_in_use() {
  saw(SessionEvent::kUsable);
  const PathSlot& slot = *paths_.in_use();
  const std::string to(host_->transports()[slot.transport].offer.name);
  std::string line = paths_.explain();
  const bool first = carried_by_.empty();
  Event event;
  event.kind = first ? Event::Kind::kConnected : Event::Kind::kPathChanged;
  event.text = first ? line : fmt::format("{} -> {}: {}", carried_by_, to, paths_.left_because());
  if (!first) {
    const bool back = paths_.left_for_better();
    (back ? stats_.failbacks : stats_.recoveries).add();
    stats_.failovers.add(back || carried_by_ == to ? 0 : 1);
    log(back ? LogLevel::kInfo : LogLevel::kWarning, fmt::format("path to {} changed: {}", who(), event.text));
  } else {
    log(LogLevel::kInfo, fmt::format("connected to {} over {}", who(), line));
  }
  carried_by_ = to;
  {
    const std::lock_guard lock(mutex_);
    description_.transport = to;
    description_.explain = std::move(line);
  }
  set_public_state(PeerState::kReady);
  inbound_.event_of_ours();
  host_->queues().push_event(*this, std::move(event));
  if (first) host_->session_ready(*this);
  pump();
}

void SessionImpl::path_lost() {
  if (!carried_by_.empty() && !paths_.left_for_better()) set_public_state(PeerState::kRecovering);
  dirty_ = true;
}

/// What the path will not report any more: requests that had no transfer (hello, credits), or that it had no time for.
void SessionImpl::path_gone(InFlight& held) {
  while (!held.empty()) request_ended(held.end_oldest(), Code::kAborted);
  outbox_.abort_staged();
  staged_target_.reset();
  dirty_ = true;
}

}  // namespace fairlead::datapath
