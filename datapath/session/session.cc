// A session's life.
#include "datapath/session/session.h"

#include <fmt/format.h>

#include <algorithm>

#include "datapath/protocol/peer_text.h"
#include "fairlead/log.h"

namespace fairlead::datapath {

using std::chrono::milliseconds;

namespace {

constexpr milliseconds kGoodbyeWait{500}, kLastOutcomes{50};

}  // namespace

SessionImpl::SessionImpl(std::shared_ptr<SessionHost> host, bool active, std::string target)
    : host_(std::move(host)),
      active_(active),
      target_(std::move(target)),
      started_at_(host_->now()),
      link_(*host_, *this),
      greeting_(host_->principals(), host_->config().principal, host_->config().allow_anonymous),
      lookups_([this](const control::Frame& frame) { send_frame(frame); }),
      bulk_(*this, TrafficClass::kBulk, active, host_->config()),
      window_events_(host_->config().max_pending_events),
      window_bytes_(host_->config().max_pending_bytes) {}

// ---- any thread ----------------------------------------------------------------------------------------------------

PeerState SessionImpl::state() const noexcept {
  return host_->inherited() ? PeerState::kClosed : public_state_.load(std::memory_order_acquire);
}

SessionImpl::Description SessionImpl::description() const {
  if (host_->inherited()) {  // a thread of the parent may have held the lock
    Description none;
    none.closed = host_->usable();
    return none;
  }
  const std::lock_guard lock(mutex_);
  return description_;
}

PeerStats SessionImpl::stats() const {
  PeerStats s;
  s.bytes_written = stats_.bytes_written.get();
  s.bytes_read = stats_.bytes_read.get();
  s.messages_sent = stats_.messages_sent.get();
  s.messages_received = stats_.messages_received.get();
  s.transfers_completed = stats_.transfers_completed.get();
  s.transfers_failed = stats_.transfers_failed.get();
  s.resumptions = stats_.resumptions.get();
  s.atomics = stats_.atomics.get();
  for (const Flow* flow : {&bulk_, commands_seen_.load(std::memory_order_acquire)}) {
    if (flow == nullptr) continue;
    const Flow::Counters& of = flow->counters();
    s.recoveries += of.recoveries.get();
    s.paths_measured += of.paths_measured.get();
    s.failovers += of.failovers.get();
    s.failbacks += of.failbacks.get();
    s.duplicate_notifications_dropped += of.duplicate_notifications_dropped.get();
    s.atomics_served += of.atomics_served.get();
    s.rail_bytes += of.rail_bytes.get();
    s.replayed_transfers += flow->outbox().replayed.get();
    s.staged_bytes += flow->outbox().staged_bytes.get();
    if (flow->outbox().waits_for_credits.load(std::memory_order_relaxed)) s.awaiting_credit = 1;
  }
  for (const Room& room : rooms_) s.transfers_under_way += room.under_way();
  s.events_untaken = inbox.pending();
  return s;
}

// ---- life ----------------------------------------------------------------------------------------------------------

std::string SessionImpl::who() const {
  const std::lock_guard lock(mutex_);
  const std::string address = description_.address.empty() ? target_ : description_.address;
  return description_.name.empty() ? address : fmt::format("{} ({})", description_.name, address);
}

void SessionImpl::set_public_state(PeerState state) noexcept { public_state_.store(state, std::memory_order_release); }

void SessionImpl::connect_to(std::vector<Place> places) {
  if (phase_ != Phase::kResolving) return;
  phase_ = Phase::kConnecting;
  link_.dial(std::move(places), started_at_ + host_->config().connect_timeout);
}

void SessionImpl::start_passive(std::unique_ptr<ControlChannel> channel, const control::Resume* said) {
  phase_ = Phase::kHello;
  {
    const std::lock_guard lock(mutex_);
    description_.address = channel->stream().peer_address();
  }
  link_.adopt(std::move(channel));
  if (said != nullptr) handle_resume(*said);
}

void SessionImpl::begin_close(Status status) {
  close_status_ = std::move(status);
  for_paths([](PathSet& paths) { paths.stay(); });
  if (close_deadline_ == Clock::time_point::max()) close_deadline_ = host_->now();
  if (phase_ == Phase::kOpen) phase_ = Phase::kClosing;  // one that is recovering goes on recovering
  dirty_ = true;
}

void SessionImpl::fail(Status status) {
  saw(SessionEvent::kFailed);
  if (phase_ == Phase::kDraining || phase_ == Phase::kClosed) return;
  const Code code = status.code();
  begin_drain(std::move(status), code);
}

void SessionImpl::shut_down() {
  if (phase_ == Phase::kClosed || phase_ == Phase::kDraining) return;
  begin_drain({Code::kCancelled, "the engine was shut down"}, Code::kCancelled);
  goodbye_seen_ = true;
}

void SessionImpl::abandon(Status why) {
  if (phase_ == Phase::kClosed) return;
  if (!why.ok()) close_status_ = std::move(why);
  finish_close();
}

void SessionImpl::begin_drain(Status status, Code transfers_end_as) {
  if (phase_ == Phase::kDraining || phase_ == Phase::kClosed) return;
  if (link_.dialing() && !link_.is_cut()) {
    link_.close();
  } else {
    // A death on this end's side is told as such; an orderly end as ok.
    const bool orderly = status.ok() || status.code() == Code::kCancelled;
    send_frame(control::Goodbye{.code = static_cast<std::uint32_t>(orderly ? Code::kOk : status.code()),
                                .reason = orderly ? "" : status.message()});
  }
  if (link_.is_cut() && !status.ok()) goodbye_seen_ = true;  // only an end in order waits for who may come back
  close_status_ = std::move(status);
  transfers_end_as_ = transfers_end_as;
  for_paths([](PathSet& paths) { paths.shut(); });
  phase_ = Phase::kDraining;
  drain_deadline_ = host_->now() + kGoodbyeWait;
  dirty_ = true;
}

void SessionImpl::finish_close() {
  saw(SessionEvent::kDrained);
  phase_ = Phase::kClosed;
  for_paths([](PathSet& paths) {
    paths.drop_all();
    paths.bury();
  });  // never from inside its callbacks: advance() and abandon() call this
  const std::string reason =
      !close_status_.ok() ? close_status_.message() : fmt::format("the session with {} was closed", who());
  const Code as = transfers_end_as_ == Code::kOk ? Code::kCancelled : transfers_end_as_;
  for_flows([&](Flow& flow) { flow.end_all(as, reason); });
  lookups_.end({close_status_.ok() ? Code::kUnavailable : close_status_.code(), reason});
  link_.close();
  {
    const std::lock_guard lock(mutex_);
    description_.closed = close_status_;
  }
  set_public_state(PeerState::kClosed);
  Event event;
  event.kind = Event::Kind::kClosed;
  event.status = close_status_;
  event.text = reason;
  const bool lost = !close_status_.ok() && close_status_.code() != Code::kCancelled;
  // Of a stranger the host says it: there may be as many as somebody likes.
  if (lost && (active_ || was_ready())) log(LogLevel::kWarning, close_status_.message());
  // Nobody was told of a peer that never got as far as being accepted, nor will be of what it sent.
  if (active_ || was_ready()) {
    host_->queues().push_event(*this, std::move(event));
  } else {
    host_->queues().forget(*this);
  }
  early_ = {};
  events_over_.store(true, std::memory_order_release);
  using Ended = SessionHost::Ended;
  host_->session_closed(*this, !was_ready() ? Ended::kFailed : lost ? Ended::kLost : Ended::kOrderly);
}

// ---- time ----------------------------------------------------------------------------------------------------------

void SessionImpl::advance(Clock::time_point now) {
  dirty_ = false;
  for_paths([](PathSet& paths) { paths.bury(); });
  if (phase_ == Phase::kClosed) return;
  if (phase_ == Phase::kDraining) {
    const bool drained = all_flows([](Flow& flow) { return flow.drained(); });
    const bool has_link = link_.exists() || link_.is_cut();
    if (drained && (goodbye_seen_ || !has_link || now >= drain_deadline_)) return finish_close();
    if (close_status_.ok()) link_.check_answers(now, kGoodbyeWait / 5);
    if (!goodbye_seen_ && link_.is_cut()) link_.check_dialing(now);  // it meets nobody for the first time
    return;
  }
  if (asked_ && asked_->elsewhere) return move_over();
  if (asked_ && asked_->proof) return hand_over();
  if (link_.overrun()) {
    return fail({Code::kResourceExhausted,
                 fmt::format("lost {}: it does not read its control connection ({} bytes are queued for it at most)",
                             who(), ControlChannel::kMaxQueued)});
  }
  lookups_.advance(seen_by_peer());
  begin_followers();
  for_flows([now](Flow& flow) { flow.advance(now); });
  if (is_left(now)) begin_drain({}, Code::kUnavailable);
  if (may_end(now) || now >= close_deadline_) begin_drain(close_status_, Code::kCancelled);
  if (phase_ != Phase::kDraining) check_timers(now);
}

bool SessionImpl::may_end(Clock::time_point now) noexcept {
  if (phase_ != Phase::kClosing || bulk_.paths().in_use() == nullptr) return false;
  if (!all_flows([](Flow& flow) { return flow.outbox().own() == 0; })) return false;
  if (all_flows([](Flow& flow) { return flow.outbox().size() == 0; })) return true;
  if (!done_at_) done_at_ = now;
  return now - *done_at_ >= kLastOutcomes;
}

bool SessionImpl::is_left(Clock::time_point now) noexcept {
  return farewell_until_ && (now >= *farewell_until_ || all_flows([](Flow& flow) { return flow.has_said_all(); }));
}

void SessionImpl::check_timers(Clock::time_point now) {
  const EngineConfig& config = host_->config();
  link_.check_dialing(now);
  if (!was_ready() && now - started_at_ > config.connect_timeout) {
    if (!active_ && id() == 0) handshake_refused(Code::kDeadlineExceeded);
    static constexpr const char* kDoing[] = {"resolving its name", "connecting", "waiting for its hello",
                                             "setting up a path"};
    const auto phase = std::min<std::size_t>(static_cast<std::size_t>(phase_), 3);
    return fail(
        {Code::kDeadlineExceeded,
         fmt::format("gave up {} ({}) after {} ms; is it a Fairlead engine? If it is slow, raise connect_timeout",
                     kDoing[phase], who(), config.connect_timeout.count())});
  }
  if (phase_ != Phase::kResolving && phase_ != Phase::kConnecting && id() != 0) {
    for_flows([this](Flow& flow) {
      if (flow.take_life()) link_.live();
    });
    link_.check_answers(now, config.peer_timeout / 12);
    if (link_.check_silence(now)) {
      if (link_.is_cut()) {
        return end_cut(fmt::format("it did not come back within {} ms (peer_timeout)", config.peer_timeout.count()));
      }
      return fail({Code::kPeerDied,
                   fmt::format("lost {}: silent for {} ms (peer_timeout)", who(), config.peer_timeout.count())});
    }
  }
  for_flows([now](Flow& flow) { flow.check_timers(now); });
}

}  // namespace fairlead::datapath
