// A session's life and its control connection.
#include "datapath/session/session.h"

#include <fmt/format.h>

#include <algorithm>

#include "datapath/session/peer_text.h"
#include "fairlead/log.h"

namespace fairlead::datapath {

using std::chrono::milliseconds;

namespace {

constexpr std::uint32_t kProtocolVersion = 1;
constexpr milliseconds kGoodbyeWait{500};
constexpr std::size_t kMaxOffers = kMaxTransports;

}  // namespace

SessionImpl::SessionImpl(std::shared_ptr<SessionHost> host, bool active)
    : host_(std::move(host)),
      active_(active),
      started_at_(host_->now()),
      last_heard_(started_at_),
      lookups_([this](const control::Frame& frame) { send_frame(frame); }),
      outbox_(*this, host_->config().chunk_bytes),
      inbound_({host_->config().max_pending_events, host_->config().max_message_bytes}) {}

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
  s.failovers = stats_.failovers.get();
  s.replayed_transfers = outbox_.replayed.get();
  s.duplicate_notifications_dropped = stats_.duplicate_notifications_dropped.get();
  s.staged_bytes = outbox_.staged_bytes.get();
  return s;
}

bool SessionImpl::take_event(Event& event) {
  std::size_t taken = 0;
  if (!host_->queues().take_event(inbox, event, taken)) return false;
  event_taken(taken);
  return true;
}

void SessionImpl::event_taken(std::size_t taken) {
  const std::size_t quarter = std::max<std::size_t>(host_->config().max_pending_events / 4, 1);
  if (taken % quarter == 0) host_->lane().kick();
}

void SessionImpl::submit(TransferImpl& transfer) {
  transfer.session = this;
  transfer.sink = this;
  if (transfer.prepared == nullptr) transfer.session_owner = self();
  transfer.references.store(2, std::memory_order_relaxed);  // the poster's and the driver's; nobody else has it yet
  host_->lane().submit(transfer);
}

void SessionImpl::request_cancel(TransferImpl& transfer) {
  transfer.cancel_requested.store(true);
  cancel_pending_.store(true);
  host_->lane().submit([self = self()] { self->check_deadlines(self->host_->now()); });
}

std::shared_ptr<LookupRequest> SessionImpl::start_lookup(std::string_view name, bool prefix) {
  auto request = std::make_shared<LookupRequest>();
  request->name = name;
  request->prefix = prefix;
  host_->lane().submit([self = self(), request] {
    if (self->finished() || self->phase_ == Phase::kDraining || self->phase_ == Phase::kClosing) {
      request->status = {Code::kUnavailable, fmt::format("the session with {} is closed", self->who())};
      request->finished.store(true, std::memory_order_release);
    } else {
      self->lookups_.add(request);
    }
  });
  return request;
}

void SessionImpl::request_close(std::chrono::nanoseconds grace) {
  const Clock::time_point deadline = deadline_after(grace);
  host_->lane().submit([self = self(), deadline] {
    if (self->phase_ == Phase::kClosing || self->phase_ == Phase::kDraining || self->finished()) return;
    self->close_deadline_ = deadline;
    self->begin_close({});
  });
}

// ---- life ----------------------------------------------------------------------------------------------------------

std::string SessionImpl::who() const {
  const std::lock_guard lock(mutex_);
  const std::string address = description_.address.empty() ? target_ : description_.address;
  return description_.name.empty() ? address : fmt::format("{} ({})", description_.name, address);
}

void SessionImpl::set_public_state(PeerState state) noexcept { public_state_.store(state, std::memory_order_release); }

void SessionImpl::start_active(const std::string& host_port_text) { target_ = host_port_text; }

void SessionImpl::connect_to(const std::string& numeric_host, std::uint16_t port) {
  if (phase_ != Phase::kResolving) return;
  Result<std::unique_ptr<ControlStream>> stream = host_->dial(numeric_host, port);
  if (!stream) {
    fail({stream.error().code(), fmt::format("{}: {}", target_, stream.error().message())});
    return;
  }
  channel_ = std::make_unique<ControlChannel>(std::move(*stream), true);
  phase_ = Phase::kConnecting;
  watch_control();
}

void SessionImpl::start_passive(std::unique_ptr<ControlStream> stream) {
  channel_ = std::make_unique<ControlChannel>(std::move(stream), false);
  phase_ = Phase::kHello;
  {
    const std::lock_guard lock(mutex_);
    description_.address = channel_->stream().peer_address();
  }
  watch_control();
}

void SessionImpl::watch_control() {
  if (channel_ == nullptr) return;
  std::uint32_t events = 0;  // always one of them: 0 means that it is not watched yet
  if (channel_->wants_read()) events |= EPOLLIN;
  if (channel_->wants_write()) events |= EPOLLOUT;
  if (events == watched_) return;
  host_->watch_control(channel_->stream(), *this, events, watched_ == 0);
  watched_ = events;
}

void SessionImpl::send_frame(const control::Frame& frame) {
  if (channel_ == nullptr) return;
  // This may be the middle of anything: advance() ends the session. A connection that broke is noticed by reading it,
  // after what the peer said last.
  const Status sent = channel_->send(frame);
  if (sent.code() == Code::kResourceExhausted) overrun_ = dirty_ = true;
  watch_control();
}

void SessionImpl::on_control_ready(std::uint32_t epoll_events) {
  if (channel_ == nullptr) return;
  // Of a connection that ended while nothing is read from it, the end shows in writing.
  const bool ended = (epoll_events & (EPOLLHUP | EPOLLERR)) != 0 && !channel_->wants_read();
  if (phase_ == Phase::kConnecting || (epoll_events & EPOLLOUT) != 0 || ended) {
    if (Status sent = channel_->flush(); !sent.ok()) {
      fail({phase_ == Phase::kConnecting ? Code::kUnavailable : sent.code(),
            fmt::format("{} {}: {}", phase_ == Phase::kConnecting ? "cannot connect to" : "lost", who(),
                        sent.message())});
      return;
    }
    if (phase_ == Phase::kConnecting && !channel_->connecting()) {
      phase_ = Phase::kHello;
      {
        const std::lock_guard lock(mutex_);
        description_.address = channel_->stream().peer_address();
      }
      send_hello();
    }
    watch_control();
  }
  if ((epoll_events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0 || phase_ == Phase::kConnecting) return;
  read_control();
}

void SessionImpl::read_control() {
  Status got = channel_->read([this](const control::Frame& frame) {
    last_heard_ = host_->now();
    handle_frame(frame);
    return phase_ != Phase::kClosed;
  });
  if (got.ok() || phase_ == Phase::kClosed) return;
  host_->unwatch_control(channel_->stream());
  if (phase_ == Phase::kDraining || phase_ == Phase::kClosing) {
    goodbye_seen_ = true;  // there is nobody left to say it
    channel_.reset();
    dirty_ = true;
    return;
  }
  if (id() == 0) host_->handshake_refused();
  channel_.reset();
  fail({got.code(), fmt::format("lost {}: {}", who(), got.message())});
}

void SessionImpl::send_hello() {
  control::Frame frame;
  control::Hello& hello = *frame.mutable_hello();
  hello.set_version_min(kProtocolVersion);
  hello.set_version_max(kProtocolVersion);
  hello.set_engine_name(host_->config().name);
  hello.set_session_id(id());
  for (const Offer& offer : host_->offers()) {
    control::TransportOffer& t = *hello.add_transports();
    t.set_name(offer.name);
    t.set_kind(offer.kind);
    t.set_software(offer.software);
  }
  hello.set_max_message_bytes(host_->config().max_message_bytes);
  hello.set_event_window(static_cast<std::uint32_t>(host_->config().max_pending_events));
  send_frame(frame);
}

void SessionImpl::handle_frame(const control::Frame& frame) {
  using Body = control::Frame::BodyCase;
  const bool greeted = id() != 0;
  const Body body = frame.body_case();
  if (body == Body::kHello && !greeted) return handle_hello(frame.hello());
  if (body == Body::kRefused && !greeted) {
    return fail({code_from_wire(frame.refused().code()),
                 fmt::format("{} refused us: {}", who(), clipped(frame.refused().reason()))});
  }
  if (!greeted || phase_ == Phase::kDraining) {
    if (body == Body::kGoodbye) goodbye_seen_ = dirty_ = true;
    if (greeted) return;
    host_->handshake_refused();
    return fail({Code::kDataLoss, fmt::format("{} spoke before its hello", who())});
  }
  switch (body) {
    case Body::kPathOffer:
      return handle_path_offer(frame.path_offer());
    case Body::kPathAnswer:
      return handle_path_answer(frame.path_answer());
    case Body::kPathReady:
      return handle_path_ready(frame.path_ready());
    case Body::kPathDown:
      return handle_path_down(frame.path_down());
    case Body::kFence:
      return handle_fence(frame.fence());
    case Body::kFenceAck:
      return handle_fence_ack(frame.fence_ack());
    case Body::kLookup:
      return send_frame(answer(frame.lookup(), host_->regions()));
    case Body::kRegions:
      return lookups_.on_regions(frame.regions(), who());
    case Body::kGoodbye:
      return handle_goodbye(frame.goodbye());
    case Body::kPing: {
      if (frame.ping().reply()) {
        if (slot_ != nullptr) slot_->probe_answered = true;
        return;
      }
      control::Frame pong;
      pong.mutable_ping()->set_nonce(frame.ping().nonce());
      pong.mutable_ping()->set_reply(true);
      return send_frame(pong);
    }
    case Body::kHello:
    case Body::kRefused:
    case Body::BODY_NOT_SET:
      break;
  }
  fail({Code::kDataLoss, fmt::format("{} sent an unexpected control frame (type {})", who(), static_cast<int>(body))});
}

void SessionImpl::handle_hello(const control::Hello& hello) {
  {
    const std::lock_guard lock(mutex_);
    description_.name = clipped(hello.engine_name());
  }
  const auto refuse = [&](Code code, std::string reason) {
    control::Frame frame;
    frame.mutable_refused()->set_code(static_cast<std::uint32_t>(code));
    frame.mutable_refused()->set_reason(reason);
    send_frame(frame);
    host_->handshake_refused();
    fail({code, fmt::format("refused {}: {}", who(), reason)});
  };
  if (hello.version_min() > kProtocolVersion || hello.version_max() < kProtocolVersion) {
    return refuse(Code::kVersionMismatch,
                  fmt::format("protocol versions {}..{} offered, {}..{} spoken here; run the same release at both ends",
                              hello.version_min(), hello.version_max(), kProtocolVersion, kProtocolVersion));
  }
  if (static_cast<std::size_t>(hello.transports_size()) > kMaxOffers || hello.event_window() == 0) {
    return refuse(Code::kInvalidArgument, fmt::format("{} transports (limit {}), event window {} (at least 1)",
                                                      hello.transports_size(), kMaxOffers, hello.event_window()));
  }
  for (const control::TransportOffer& t : hello.transports()) {
    peer_offers_.push_back({clipped(t.name()), clipped(t.kind()), t.software()});
  }
  outbox_.set_limits({hello.event_window(), hello.max_message_bytes()});
  if (active_) {
    if (hello.session_id() == 0) return refuse(Code::kDataLoss, "the hello names no session");
    id_.store(hello.session_id(), std::memory_order_release);
  } else {
    host_->open_for_peer(peer_offers_);
    id_.store(host_->random(), std::memory_order_release);
    send_hello();
  }
  phase_ = Phase::kPathing;
  lookups_.open(id());
  if (!active_) return;
  Choice choice = choose(host_->config().transport, host_->config().failover, host_->offers(), peer_offers_);
  candidates_ = std::move(choice.candidates);
  excluded_.assign(candidates_.size(), std::string());
  if (candidates_.empty()) {
    return fail({Code::kUnavailable,
                 fmt::format("no transport in common with {}: transport is '{}'{}{}", who(), host_->config().transport,
                             choice.rejected.empty() ? "" : "; ", fmt::join(choice.rejected, "; "))});
  }
  begin_path();
}

void SessionImpl::handle_goodbye(const control::Goodbye& goodbye) {
  goodbye_seen_ = true;
  const Code code = code_from_wire(goodbye.code());
  if (code == Code::kOk) return begin_drain({}, Code::kUnavailable);
  begin_drain({code, fmt::format("{} ended the session: {}", who(), clipped(goodbye.reason()))}, code);
}

void SessionImpl::become_ready() {
  phase_ = Phase::kReady;
  const std::string to(host_->transports()[slot_->transport].offer.name);
  const std::string chosen = active_ ? candidates_[candidate_].reason : "the connecting end's choice";
  std::string passed_over;
  for (std::size_t c = 0; active_ && c < candidates_.size(); ++c) {
    if (c != candidate_) {
      passed_over += fmt::format("; {}: {}", host_->transports()[candidates_[c].local].offer.name,
                                 excluded_[c].empty() ? "ranks below" : excluded_[c]);
    }
  }
  std::string line = fmt::format("{} ({}): {}{}{}", to, slot_->path->describe(), chosen, passed_over,
                                 slot_->write_failed ? "; staged, since one-sided writes do not arrive" : "");
  const bool first = carried_by_.empty();
  Event event;
  event.kind = first ? Event::Kind::kConnected : Event::Kind::kPathChanged;
  event.text = first ? line : fmt::format("{} -> {}: {}", carried_by_, to, fence_reason_);
  if (!first) {
    stats_.failovers.add(carried_by_ == to ? 0 : 1);
    log(LogLevel::kWarning, fmt::format("path to {} changed: {}", who(), event.text));
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
  host_->queues().push_event(*this, std::move(event));
  if (first) host_->session_ready(*this);
  if (close_deadline_ != Clock::time_point::max()) phase_ = Phase::kClosing;
  inbound_.forget_told();
  send_consumed(true);
  pump();
}

void SessionImpl::begin_close(Status status) {
  close_status_ = std::move(status);
  if (close_deadline_ == Clock::time_point::max()) close_deadline_ = host_->now();
  // A session that is recovering goes on recovering; become_ready() comes back here.
  if (phase_ == Phase::kReady) phase_ = Phase::kClosing;
  dirty_ = true;
}

void SessionImpl::fail(Status status) {
  if (phase_ == Phase::kDraining || phase_ == Phase::kClosed) return;
  const Code code = status.code();
  begin_drain(std::move(status), code);
}

void SessionImpl::shut_down() {
  if (phase_ == Phase::kClosed || phase_ == Phase::kDraining) return;
  begin_drain({Code::kCancelled, "the engine was destroyed"}, Code::kCancelled);
  goodbye_seen_ = true;
}

void SessionImpl::begin_drain(Status status, Code transfers_end_as) {
  if (phase_ == Phase::kDraining || phase_ == Phase::kClosed) return;
  if (channel_ != nullptr && !channel_->connecting()) {
    // A death on this end's side is told as such; an orderly end as ok.
    control::Frame frame;
    const bool orderly = status.ok() || status.code() == Code::kCancelled;
    frame.mutable_goodbye()->set_code(static_cast<std::uint32_t>(orderly ? Code::kOk : status.code()));
    frame.mutable_goodbye()->set_reason(orderly ? "" : status.message());
    send_frame(frame);
  }
  close_status_ = std::move(status);
  transfers_end_as_ = transfers_end_as;
  close_slot();
  phase_ = Phase::kDraining;
  drain_deadline_ = host_->now() + kGoodbyeWait;
  dirty_ = true;
}

void SessionImpl::finish_close() {
  phase_ = Phase::kClosed;
  drop_slot();
  dead_slot_.reset();  // never from inside its callbacks: advance() and abandon() call this
  const std::string reason =
      !close_status_.ok() ? close_status_.message() : fmt::format("the session with {} was closed", who());
  outbox_.end_all(transfers_end_as_ == Code::kOk ? Code::kCancelled : transfers_end_as_, reason);
  lookups_.end({close_status_.ok() ? Code::kUnavailable : close_status_.code(), reason});
  if (channel_ != nullptr) {
    host_->unwatch_control(channel_->stream());
    channel_.reset();
  }
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
  if (lost) log(LogLevel::kWarning, close_status_.message());
  // Nobody was told of a peer that never got as far as being accepted.
  if (active_ || was_ready()) host_->queues().push_event(*this, std::move(event));
  host_->session_closed(*this, lost);
}

// ---- time ----------------------------------------------------------------------------------------------------------

void SessionImpl::advance(Clock::time_point now) {
  dirty_ = false;
  dead_slot_.reset();
  if (phase_ == Phase::kClosed) return;
  if (phase_ == Phase::kDraining) {
    const bool drained = slot_ == nullptr || slot_->path->drained();
    if (drained && (goodbye_seen_ || channel_ == nullptr || now >= drain_deadline_)) finish_close();
    return;
  }
  if (overrun_) {
    return fail({Code::kResourceExhausted,
                 fmt::format("lost {}: it does not read its control connection ({} bytes are queued for it at most)",
                             who(), ControlChannel::kMaxQueued)});
  }
  advance_path(now);
  if (phase_ == Phase::kReady || phase_ == Phase::kClosing) {
    // What the target turned away on a path that lives (tcp) is posted again; a dying path takes a fence.
    if (outbox_.held() && slot_ != nullptr && slot_->usable && !slot_->down) outbox_.requeue();
    pump();
    send_consumed(false);
  }
  if ((phase_ == Phase::kClosing && outbox_.size() == 0) || now >= close_deadline_) {
    begin_drain(close_status_, Code::kCancelled);
  }
  if (phase_ != Phase::kDraining) check_timers(now);
}

void SessionImpl::check_timers(Clock::time_point now) {
  const EngineConfig& config = host_->config();
  if (carried_by_.empty() && now - started_at_ > config.connect_timeout) {
    static constexpr const char* kDoing[] = {"resolving its name", "connecting", "waiting for its hello",
                                             "setting up a path"};
    const auto phase = std::min<std::size_t>(static_cast<std::size_t>(phase_), 3);
    return fail(
        {Code::kDeadlineExceeded,
         fmt::format("gave up {} ({}) after {} ms; is it a Fairlead engine? If it is slow, raise connect_timeout",
                     kDoing[phase], who(), config.connect_timeout.count())});
  }
  if (phase_ != Phase::kResolving && phase_ != Phase::kConnecting && id() != 0) {
    const auto silence = now - last_heard_;
    if (silence > config.peer_timeout) {
      return fail({Code::kPeerDied,
                   fmt::format("lost {}: silent for {} ms (peer_timeout)", who(), config.peer_timeout.count())});
    }
    if (silence > config.peer_timeout / 3 && now - last_ping_ > config.peer_timeout / 6) {
      last_ping_ = now;
      control::Frame frame;
      frame.mutable_ping()->set_nonce(1);
      send_frame(frame);
    }
  }
  const bool deadlines = outbox_.has_deadlines() && now - deadlines_checked_ >= milliseconds(1);
  if (deadlines || cancel_pending_.load(std::memory_order_relaxed) || release_deadline_ != Clock::time_point::max()) {
    deadlines_checked_ = now;
    check_deadlines(now);
    if (now > release_deadline_ && slot_ != nullptr && slot_->usable) {
      release_deadline_ = Clock::time_point::max();
      path_died(Code::kAborted, "a cancelled transfer's buffer had to be taken back from a path that does not move");
    }
  }
  if (phase_ == Phase::kReady || phase_ == Phase::kClosing) check_path_progress(now);
}

}  // namespace fairlead::datapath
