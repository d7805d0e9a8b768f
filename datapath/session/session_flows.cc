// What a session gives its flows, and what it hears of them.
#include <fmt/format.h>

#include "datapath/session/session.h"

namespace fairlead::datapath {

PathConfig SessionImpl::path_config() {
  PathConfig config;
  config.peer_host = link_.stream().peer_host();
  config.local_host = link_.stream().local_host();
  config.peer_timeout = host_->config().peer_timeout;
  return config;
}

// ---- transfers -----------------------------------------------------------------------------------------------------

void SessionImpl::accept_transfer(TransferImpl& t) {
  if (phase_ == Phase::kClosing || phase_ == Phase::kDraining || phase_ == Phase::kClosed || farewell_until_ ||
      close_deadline_ != Clock::time_point::max()) {
    const bool lost = !close_status_.ok();
    t.reason = lost ? close_status_.message() : fmt::format("the session with {} is closed", who());
    return transfer_ended(t, lost ? close_status_.code() : Code::kUnavailable);
  }
  flow_.accept(t);
}

void SessionImpl::transfer_ended(TransferImpl& t, Code code) {
  (code == Code::kOk ? stats_.transfers_completed : stats_.transfers_failed).add();
  if (t.list != nullptr) (t.list->kind == OpKind::kWrite ? stats_.bytes_written : stats_.bytes_read).add(t.done_bytes);
  if (t.is_send && code == Code::kOk) stats_.messages_sent.add();
  ended_.add();
  ended_bytes_.add(t.message.size());
  t.code = code;
  const bool report = t.report;
  if (report) add_reference(t);
  t.finished.store(true, std::memory_order_release);
  if (report) host_->queues().push_completed(t);
  drop_reference(t);
}

// ---- what comes, and paths -----------------------------------------------------------------------------------------

void SessionImpl::deliver(Event&& event) {
  if (event.kind == Event::Kind::kMessage) stats_.messages_received.add();
  host_->queues().push_event(*this, std::move(event));
}

void SessionImpl::flow_usable(Event&& news) {
  saw(SessionEvent::kUsable);
  const bool first = news.kind == Event::Kind::kConnected;
  {
    const std::lock_guard lock(mutex_);
    description_.transport = flow_.carried_by();
    description_.explain = flow_.paths().explain();
  }
  set_public_state(PeerState::kReady);
  host_->queues().push_event(*this, std::move(news));
  if (first) host_->session_ready(*this);
}

void SessionImpl::flow_lost() { set_public_state(PeerState::kRecovering); }

}  // namespace fairlead::datapath
