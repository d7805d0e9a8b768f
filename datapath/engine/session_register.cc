#include "datapath/engine/session_register.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/tally.h"
#include "fairlead/log.h"

namespace fairlead::datapath {
namespace {

/// What was counted.
void add(PeerStats& total, const PeerStats& more) {
  for (auto field :
       {&PeerStats::bytes_written, &PeerStats::bytes_read, &PeerStats::messages_sent, &PeerStats::messages_received,
        &PeerStats::transfers_completed, &PeerStats::transfers_failed, &PeerStats::recoveries, &PeerStats::failovers,
        &PeerStats::failbacks, &PeerStats::resumptions, &PeerStats::paths_measured, &PeerStats::replayed_transfers,
        &PeerStats::duplicate_notifications_dropped, &PeerStats::staged_bytes, &PeerStats::rail_bytes,
        &PeerStats::atomics, &PeerStats::atomics_served}) {
    total.*field += more.*field;
  }
}

}  // namespace

Status SessionRegister::too_many() const {
  return {Code::kResourceExhausted, fmt::format("{} has {} sessions already; close some, or raise its max_sessions",
                                                config_.name, config_.max_sessions)};
}

SessionRegister::Entries::iterator SessionRegister::entry_of(const SessionImpl& session) {
  return std::find_if(entries_.begin(), entries_.end(),
                      [&](const Entry& entry) { return entry.session.get() == &session; });
}

/// Of those that do not leave.
std::size_t SessionRegister::count(const std::function<bool(const Entry&)>& is) const {
  return static_cast<std::size_t>(
      std::count_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return !entry.leaving && is(entry); }));
}

bool SessionRegister::is_full() const {
  return entries_.size() >= config_.max_sessions && count([](const Entry&) { return true; }) >= config_.max_sessions;
}

Status SessionRegister::begin(const Session& session) {
  const std::lock_guard lock(mutex_);
  if (is_full()) return too_many();
  entries_.push_back({.session = session, .principal = {}, .seen = true});
  return {};
}

SessionRegister::GivesWay SessionRegister::meet(const Session& stranger) {
  const std::lock_guard lock(mutex_);
  GivesWay gives_way;
  if (strangers_.size() >= config_.max_handshakes) {
    tally().handshakes_refused.add(Code::kResourceExhausted);
    refused();
    // The oldest: an honest peer says hello at once.
    gives_way = {
        strangers_.front(),
        {Code::kResourceExhausted, fmt::format("dropped {}: {} connections have not said hello (max_handshakes)",
                                               strangers_.front()->description().address, strangers_.size())}};
    strangers_.pop_front();
  }
  strangers_.push_back(stranger);
  return gives_way;
}

/// What the sessions that a principal began, those that end included, do not have already.
CreditWindow::Limits SessionRegister::left_to(const std::string& principal, std::vector<Session>& looked_at) {
  CreditWindow::Limits left{.events = config_.max_principal_pending_events,
                            .bytes = config_.max_principal_pending_bytes};
  if (left.events == 0) left.events = std::numeric_limits<std::uint64_t>::max();
  if (left.bytes == 0) left.bytes = std::numeric_limits<std::uint64_t>::max();
  std::erase_if(remains_, [&](const Remains& each) {
    const Session& session = looked_at.emplace_back(each.session.lock());
    return session == nullptr || session->inbox.pending() == 0;
  });
  const auto take = [&](const CreditWindow::Limits& window) {
    left.events -= std::min(left.events, window.events);
    left.bytes -= std::min(left.bytes, window.bytes);
  };
  for (const Entry& entry : entries_) {
    if (!entry.session->is_active() && entry.principal == principal) take(entry.window);
  }
  for (const Remains& each : remains_) {
    if (each.principal == principal) take(each.window);
  }
  return left;
}

Status SessionRegister::admit(const SessionImpl& session, const std::string& principal, CreditWindow::Limits& window,
                              GivesWay& gives_way) {
  // Who lost its connection, and comes anew instead of going on, is not kept out by the session that waits for it.
  constexpr std::string_view kTakesItsPlace = "another of its principal took its place";
  std::vector<Session> looked_at;
  const std::lock_guard lock(mutex_);
  if (is_full()) {
    gives_way = oldest_cut(principal, kTakesItsPlace);
    if (gives_way.session == nullptr) return too_many();
  }
  if (const std::size_t most = config_.max_principal_sessions; most != 0) {
    const std::size_t same =
        count([&](const Entry& entry) { return !entry.session->is_active() && entry.principal == principal; });
    if (same >= most) gives_way = oldest_cut(principal, kTakesItsPlace);
    if (same >= most && gives_way.session == nullptr) {
      return {Code::kResourceExhausted,
              fmt::format("{} has {} sessions already that {} began; close some, or raise its max_principal_sessions",
                          config_.name, same, principal.empty() ? "anonymous peers" : "'" + principal + "'")};
    }
  }
  const CreditWindow::Limits left = left_to(principal, looked_at);
  if (left.events == 0 || left.bytes == 0) {
    if (gives_way.session == nullptr) gives_way = oldest_cut(principal, kTakesItsPlace);
    return {Code::kResourceExhausted,
            fmt::format("{} has given the sessions that {} began all that they may have undelivered; close some, or "
                        "raise its max_principal_pending_events and max_principal_pending_bytes",
                        config_.name, principal.empty() ? "anonymous peers" : "'" + principal + "'")};
  }
  window = {.events = std::min(window.events, left.events), .bytes = std::min(window.bytes, left.bytes)};
  const auto stranger =
      std::find_if(strangers_.begin(), strangers_.end(), [&](const Session& each) { return each.get() == &session; });
  if (stranger == strangers_.end()) return {Code::kCancelled, "it was dropped while it said hello"};
  entries_.push_back({.session = std::move(*stranger), .principal = principal, .window = window});
  strangers_.erase(stranger);
  return {};
}

void SessionRegister::ready(const Session& session) {
  const std::lock_guard lock(mutex_);
  ++peers_connected_;
  if (const auto at = entry_of(*session); at != entries_.end()) at->seen = true;
}

/// Of a principal, if it has any. It is none of them any more, though it may take a while to end.
SessionRegister::GivesWay SessionRegister::oldest_cut(const std::string& principal, std::string_view because) {
  Entry* oldest = nullptr;
  for (Entry& entry : entries_) {
    if (entry.leaving || entry.cut == 0 || entry.principal != principal) continue;
    if (oldest == nullptr || entry.cut < oldest->cut) oldest = &entry;
  }
  if (oldest == nullptr) return {};
  oldest->leaving = true;
  const std::string name = oldest->session->description().name;
  return {oldest->session,
          {Code::kPeerDied, fmt::format("lost {}: its control connection broke, and {}", name, because)}};
}

SessionRegister::GivesWay SessionRegister::cut(const SessionImpl& session) {
  const std::lock_guard lock(mutex_);
  const auto own = entry_of(session);
  if (own == entries_.end()) return {};
  own->cut = ++last_cut_;
  const std::string principal = own->principal;
  const auto same = count([&](const Entry& entry) { return entry.cut != 0 && entry.principal == principal; });
  if (same <= config_.max_cut_sessions) return {};
  return oldest_cut(principal, fmt::format("no more than {} such sessions of a principal are kept (max_cut_sessions)",
                                           config_.max_cut_sessions));
}

void SessionRegister::resumed(const SessionImpl& session) noexcept {
  const std::lock_guard lock(mutex_);
  if (const auto at = entry_of(session); at != entries_.end()) at->cut = 0;
}

/// Why one that connected never became a peer. Many of them must not fill a log: what is kept back stands at info.
void SessionRegister::say_stranger_failed(const SessionImpl& session) {
  const Status why = session.description().closed;
  if (why.ok() || why.code() == Code::kCancelled) return;  // the end of this engine
  std::optional<std::uint64_t> before;
  {
    const std::lock_guard lock(mutex_);
    before = strangers_said_.take(Clock::now());
  }
  if (!before) return log(LogLevel::kInfo, why.message());
  const std::string others = LineLimit::others(*before);
  log(LogLevel::kWarning, why.message() + others);
}

void SessionRegister::closed(const SessionImpl& session, SessionHost::Ended how) {
  if (how == SessionHost::Ended::kFailed && !session.is_active()) say_stranger_failed(session);
  const std::lock_guard lock(mutex_);
  std::erase_if(strangers_, [&](const Session& each) { return each.get() == &session; });
  add(ended_, session.stats());
  if (const auto at = entry_of(session); at != entries_.end()) {
    if (!session.is_active() && shares_windows()) remains_.push_back({at->session, at->principal, at->window});
    entries_.erase(at);
  }
  using Ended = SessionHost::Ended;
  if (how == Ended::kLost) ++peers_lost_;
  if (how == Ended::kFailed && !session.is_active() && !session.description().name.empty()) ++peers_failed_;
}

void SessionRegister::clear() {
  std::list<Session> strangers;  // sessions take locks when they go
  Entries entries;
  const std::lock_guard lock(mutex_);
  strangers.swap(strangers_);
  entries.swap(entries_);
}

std::vector<SessionRegister::Session> SessionRegister::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<Session> seen;
  for (const Entry& entry : entries_) {
    if (entry.seen) seen.push_back(entry.session);
  }
  return seen;
}

SessionRegister::Session SessionRegister::find(std::uint64_t id) const {
  const std::lock_guard lock(mutex_);
  const auto at = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return !entry.session->is_active() && id != 0 && entry.session->id() == id;
  });
  return at != entries_.end() ? at->session : nullptr;
}

void SessionRegister::add_to(EngineStats& stats) const {
  stats.handshakes_refused = handshakes_refused_.load(std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  stats.total = ended_;
  stats.peers_connected = peers_connected_;
  stats.peers_lost = peers_lost_;
  stats.peers_failed = peers_failed_;
  for (const Entry& entry : entries_) {
    const PeerStats session = entry.session->stats();
    add(stats.total, session);
    stats.total.transfers_under_way += session.transfers_under_way;
    stats.total.events_untaken += session.events_untaken;
    stats.total.awaiting_credit += session.awaiting_credit;
  }
}

}  // namespace fairlead::datapath
