// What a session gives its flows, and what it hears of them.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "datapath/session/session.h"

namespace fairlead::datapath {

PathConfig SessionImpl::path_config() {
  PathConfig config;
  if (linked() && !link_.dialing()) hosts_ = {link_.stream().peer_host(), link_.stream().local_host()};
  config.peer_host = hosts_.peer;
  config.local_host = hosts_.local;
  config.peer_timeout = host_->config().peer_timeout;
  config.polled = host_->config().progress != Progress::kApplication;
  return config;
}

/// Before the peer can ask for regions, whose keys are of these. Where one cannot be made, paths cannot be opened, and
/// then say why.
void SessionImpl::open_domains(const std::vector<Offer>& theirs) {
  if (greeting_.principal() == host_->config().principal) return;
  tenant_ = host_->regions().tenant(greeting_.principal());
  const std::vector<Offer> ours = host_->offers();
  for (std::size_t transport = 0; transport < ours.size(); ++transport) {
    const auto is_like = [&](const Offer& offer) { return offer.kind == ours[transport].kind; };
    if (std::ranges::any_of(theirs, is_like)) static_cast<void>(domain_at(transport));
  }
}

Result<DomainBook*> SessionImpl::domain_at(std::size_t transport) {
  if (tenant_ == nullptr) return nullptr;
  return host_->regions().domain(*tenant_, transport, *host_->transports()[transport].device);
}

// ---- transfers -----------------------------------------------------------------------------------------------------

void SessionImpl::accept_transfer(TransferImpl& t) {
  if (phase_ == Phase::kClosing || phase_ == Phase::kDraining || phase_ == Phase::kClosed || farewell_until_ ||
      close_deadline_ != Clock::time_point::max()) {
    const bool lost = !close_status_.ok();
    t.reason = lost ? close_status_.message() : fmt::format("the session with {} is closed", who());
    return transfer_ended(t, lost ? close_status_.code() : Code::kUnavailable);
  }
  if (t.tied) {
    if (!t.after->finished.load(std::memory_order_acquire)) {
      t.after->tied = true;
      t.after->followers.push_back(t.follows);
    } else if (const Status lost = is_lost_with(*t.after); !lost.ok()) {
      t.reason = lost.message();
      return transfer_ended(t, lost.code());
    } else {
      drop_reference(*std::exchange(t.after, nullptr));
    }
  }
  give_to(flow_of(t.traffic), t);
}

void SessionImpl::give_to(Flow& flow, TransferImpl& t) {
  if (flow.accept(t)) return;
  t.reason = "no memory left";  // short enough to take none itself
  transfer_ended(t, Code::kResourceExhausted);
}

/// What becomes of the followers of a transfer that has ended; along a chain of them the words stay the same.
Status SessionImpl::is_lost_with(const TransferImpl& ended) {
  static constexpr std::string_view kWhy = "the transfer that it was to follow failed: ";
  if (ended.code == Code::kOk) return {};
  return {ended.code, ended.reason.starts_with(kWhy) ? ended.reason : fmt::format("{}{}", kWhy, ended.reason)};
}

/// Apart from the end of what they follow: that may come while a flow goes through what it has.
void SessionImpl::begin_followers() {
  while (TransferImpl* t = may_begin_.pop_front()) {
    TransferImpl& before = *t->after;
    Outbox& outbox = flow_of(t->traffic).outbox();
    const Status lost = is_lost_with(before);
    if (!lost.ok()) {
      outbox.end_early(*t, now(), lost.code(), lost.message());  // and lets go of `before`
    } else {
      t->after = nullptr;
      outbox.let_go(*t);
      drop_reference(before);
    }
  }
}

/// Of what has ended: those that follow it may begin, and it follows nothing.
void SessionImpl::untie(TransferImpl& t) {
  t.follows.unlink();
  if (TransferImpl* before = std::exchange(t.after, nullptr)) drop_reference(*before);
  while (TransferImpl* follower = t.followers.pop_front()) {
    may_begin_.push_back(follower->follows);
    dirty_ = true;
  }
}

void SessionImpl::transfer_ended(TransferImpl& t, Code code) {
  (code == Code::kOk ? stats_.transfers_completed : stats_.transfers_failed).add();
  if (t.list != nullptr) (t.list->kind == OpKind::kWrite ? stats_.bytes_written : stats_.bytes_read).add(t.done_bytes);
  if (t.is_send && code == Code::kOk) stats_.messages_sent.add();
  if (t.atomic != AtomicOp::kNone && code == Code::kOk) stats_.atomics.add();
  room_of(t).end(t.message_bytes());
  t.code = code;
  if (t.tied) untie(t);
  const bool report = t.report;
  if (report) add_reference(t);
  t.finished.store(true, std::memory_order_release);
  if (report && !host_->queues().push_completed(t)) drop_reference(t);
  drop_reference(t);
}

// ---- classes -------------------------------------------------------------------------------------------------------

/// A peer of a version before classes gets everything in one order. Which version it is shows with its hello: until
/// then each class gathers what it has.
Flow& SessionImpl::flow_of(TrafficClass traffic) {
  if (traffic == TrafficClass::kBulk || (id() != 0 && !has_classes())) return bulk_;
  if (commands_ == nullptr) {
    open_commands();
    if (id() != 0 && !active_) send_frame(control::PathWanted{static_cast<std::uint32_t>(traffic)});
  }
  return *commands_;
}

void SessionImpl::open_commands() {
  commands_ = std::make_unique<Flow>(*this, TrafficClass::kCommands, active_, host_->config());
  commands_->set_window(window());
  commands_seen_.store(commands_.get(), std::memory_order_release);
  begin_commands();
}

/// Greeted: the flow may have a path.
void SessionImpl::begin(Flow& flow) {
  flow.outbox().set_limits(limits_);
  flow.allow(peer_version_ >= kPathsBeside, peer_version_ >= kRails);
  if (active_) return flow.begin(candidates_);
  flow.expect(peer_offers_);
}

/// The same for commands, if there are any.
void SessionImpl::begin_commands() {
  if (commands_ == nullptr || id() == 0) return;
  if (has_classes()) return begin(*commands_);
  while (TransferImpl* t = commands_->outbox().give_back()) give_to(bulk_, *t);
}

/// A frame that speaks of paths, of which it names the flow.
void SessionImpl::handle_path_frame(const control::Frame& frame) {
  const std::uint32_t* const said = control::flow_of(frame);
  const std::uint32_t flow = said != nullptr ? *said : 0;
  const bool commands = flow == static_cast<std::uint32_t>(TrafficClass::kCommands) && has_classes();
  const bool wanted = std::holds_alternative<control::PathWanted>(frame);
  const bool opens = active_ ? wanted : std::holds_alternative<control::PathOffer>(frame);
  if (commands && commands_ == nullptr && opens) open_commands();
  Flow* const named = flow == 0 ? &bulk_ : commands ? commands_.get() : nullptr;
  if (wanted ? commands && active_ : named != nullptr && named->handle(frame)) return;
  fail({Code::kDataLoss, fmt::format("{} sent an unexpected control frame (type {}{})", who(), frame.index(),
                                     flow != 0 ? fmt::format(", flow {}", flow) : "")});
}

// ---- what comes, and paths -----------------------------------------------------------------------------------------

void SessionImpl::deliver(Event&& event) {
  if (event.kind == Event::Kind::kMessage) stats_.messages_received.add();
  // The path of commands may be there before that of bulk is, whose beginning is the session's.
  if (!was_ready()) return early_.push_back(std::move(event));
  host_->queues().push_event(*this, std::move(event));
}

std::size_t SessionImpl::waiting(TrafficClass traffic) const noexcept {
  return inbox.waiting(traffic) + (traffic == TrafficClass::kCommands ? early_.size() : 0);
}

void SessionImpl::flow_usable(Event&& news) {
  const bool first = news.kind == Event::Kind::kConnected, bulk = news.traffic == TrafficClass::kBulk;
  if (bulk) saw(SessionEvent::kUsable);
  flow_described();
  if (was_ready() && all_flows([](Flow& flow) { return !flow.is_recovering(); })) set_public_state(PeerState::kReady);
  // How commands go is no news to who has not heard of the session.
  if (bulk || (!first && was_ready())) host_->queues().push_event(*this, std::move(news));
  if (!bulk || !first) return;
  for (Event& event : std::exchange(early_, {})) host_->queues().push_event(*this, std::move(event));
  host_->session_ready(*this);
}

void SessionImpl::flow_described() {
  std::string explain = bulk_.explanation();
  for (const std::string& rejected : rejected_) explain += "; " + rejected;
  if (commands_ != nullptr && commands_->was_usable()) {
    explain += fmt::format("; commands have a path of their own over {}", commands_->carried_by());
  }
  const std::lock_guard lock(mutex_);
  description_.transport = bulk_.carried_by();
  description_.explain = std::move(explain);
}

void SessionImpl::flow_lost() {
  if (was_ready()) set_public_state(PeerState::kRecovering);
}

}  // namespace fairlead::datapath
