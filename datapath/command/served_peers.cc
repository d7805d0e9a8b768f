#include "datapath/command/served_peers.h"

#include <fmt/format.h>

#include <algorithm>

namespace fairlead::datapath::command {

using fairlead::command::ServiceConfig;
using fairlead::command::ServiceStats;
using fairlead::command::Sharing;

namespace {

constexpr std::chrono::seconds kGrace{30};  // for the words that turn a client away

ServerSession::Terms terms_of(const ServiceConfig& config, std::size_t max_message_bytes) {
  const std::size_t largest = std::min(kPayloadPiece, max_message_bytes - sizeof(MessageHeader));
  return {config.channels,
          config.credits,
          config.payload_credit,
          config.held_results,
          static_cast<std::uint32_t>(std::min<std::uint64_t>(largest, config.payload_credit)),
          config.module_bytes,
          config.graph_records,
          config.graph_bytes,
          {},
          static_cast<std::uint64_t>(config.most_away != 0 ? config.keep_away.count() : 0),
          (std::uint32_t{1} << std::max<std::size_t>(config.devices.size(), 1)) - 1};
}

ServerSession::Terms terms_for(const fairlead::command::Tenant& tenant, ServerSession::Terms terms) {
  if (tenant.channels != 0) terms.channels = tenant.channels;
  if (tenant.credits != 0) terms.credits = tenant.credits;
  if (!tenant.devices.empty()) terms.devices = 0;
  for (const std::uint32_t device : tenant.devices) terms.devices |= std::uint32_t{1} << device;
  terms.key = make_session_key();
  return terms;
}

Turnstiles turnstiles_of(const ServiceConfig& config, std::size_t devices) {
  Turnstiles all;
  for (std::size_t i = 0; config.sharing != Sharing::kFree && i < devices; ++i) {
    all.emplace_back(config.sharing, config.longest_turn);
  }
  return all;
}

}  // namespace

ServedPeers::ServedPeers(ServiceConfig config, std::size_t max_message_bytes, TimeSource time, Windows* windows,
                         Knows knows)
    : config_(std::move(config)),
      devices_(devices_of(config_)),
      terms_(terms_of(config_, max_message_bytes)),
      time_(time),
      windows_(windows),
      knows_(std::move(knows)),
      turnstiles_(turnstiles_of(config_, devices_.size())),
      tenants_(config_.tenants, &turnstiles_, devices_.size(), !config_.program.empty(), time),
      lost_(config_.keep_away, config_.most_away) {}

ServiceStats ServedPeers::stats() const {
  ServiceStats stats;
  stats.sessions = count_.load(std::memory_order_relaxed);
  stats.leaving = std::min(leaving_count_.load(std::memory_order_relaxed), stats.sessions);
  stats.away = std::min(away_count_.load(std::memory_order_relaxed), stats.sessions);
  stats.resumed = resumed_.load(std::memory_order_relaxed);
  stats.sessions_begun = counters_.begun.load(std::memory_order_relaxed);
  stats.sessions_refused = counters_.refused.load(std::memory_order_relaxed);
  stats.sessions_ended_wrong = counters_.ended_wrong.load(std::memory_order_relaxed);
  stats.commands = counters_.commands.load(std::memory_order_relaxed);
  stats.failures = counters_.failures.load(std::memory_order_relaxed);
  stats.skipped_unknown = counters_.skipped_unknown.load(std::memory_order_relaxed);
  stats.replies = counters_.replies.load(std::memory_order_relaxed);
  stats.modules_cached = modules_->count();
  stats.modules_sent = modules_->added();
  for (const Turnstile& turnstile : turnstiles_) stats.turn_overruns += turnstile.overruns();
  return stats;
}

Status ServedPeers::set_tenants(std::vector<fairlead::command::Tenant> tenants) {
  if (Status fine = Tenants::check(tenants, config_.sharing, devices_.size()); !fine.ok()) return fine;
  tenants_.replace(std::move(tenants));
  return {};
}

ServedPeer* ServedPeers::session_of(const Peer& peer) {
  if (latest_ != sessions_.end() && latest_->first == peer) return latest_->second.get();
  latest_ =
      std::find_if(sessions_.begin(), sessions_.end(), [&](const Served& served) { return served.first == peer; });
  return latest_ != sessions_.end() ? latest_->second.get() : nullptr;
}

void ServedPeers::handle(const Peer& peer, Event event) {
  ServedPeer* session = session_of(peer);
  switch (event.kind) {
    case Event::Kind::kMessage:
    case Event::Kind::kNotification:
      if (session == nullptr) {
        if (peer.state() == PeerState::kClosed || std::ranges::find(turned_away_, peer) != turned_away_.end()) return;
        if (hear_resuming(peer, event)) return;
        begin(peer);
        session = latest_ != sessions_.end() ? latest_->second.get() : nullptr;
        if (session == nullptr) return;
      }
      return session->deliver(std::move(event));
    case Event::Kind::kClosed:
      std::erase(turned_away_, peer);
      std::erase_if(resuming_, [&](const Resuming& each) { return each.peer == peer; });
      if (session == nullptr) return;
      lose(std::move(*latest_), event.status);
      return count_sessions();
    default:
      return;
  }
}

/// It is the latest then, or was turned away.
void ServedPeers::begin(const Peer& peer) {
  if (draining_.load()) return turn_away(peer, {Code::kUnavailable, "it is ending, and takes no new sessions"});
  drop_ended();
  // A last command has its memory and its thread yet, and so has who may come back.
  if (sessions_.size() + leaving_.size() + lost_.size() >= config_.max_sessions) {
    return turn_away(peer, {Code::kResourceExhausted,
                            fmt::format("it has {} sessions, the limit (max_sessions), and {} of their clients have "
                                        "gone, but not what they ran, {} may come back; try again when one has ended",
                                        config_.max_sessions, leaving_.size(), lost_.size())});
  }
  Result<Admission> admission = tenants_.admit(peer.principal());
  if (!admission) return turn_away(peer, admission.error());
  const ServerSession::Terms terms = terms_for(admission->terms(), terms_);
  auto session = std::make_unique<ServedPeer>(peer, *std::move(admission), terms, config_, counters_, turnstiles_,
                                              modules_, windows_, time_);
  if (config_.where == ServiceConfig::Where::kOwnThread) {
    if (const Status started = session->start_thread(); !started.ok()) return turn_away(peer, started);
  }
  sessions_.emplace_back(peer, std::move(session));
  count_sessions();
  latest_ = std::prev(sessions_.end());
}

void ServedPeers::count_sessions() noexcept {
  count_.store(sessions_.size() + leaving_.size() + lost_.size(), std::memory_order_relaxed);
  away_count_.store(lost_.size(), std::memory_order_relaxed);
  leaving_count_.store(leaving_.size(), std::memory_order_relaxed);
}

/// Once: what it says after that is of no interest.
void ServedPeers::turn_away(Peer peer, const Status& why) {
  counters_.refused.fetch_add(1, std::memory_order_relaxed);
  turned_away_.push_back(peer);
  (void)peer.send(refused_message(why), kMessageValue, {.traffic = TrafficClass::kCommands});
  peer.close(kGrace);
}

ServedPeers::Left ServedPeers::run_latest() {
  return latest_ != sessions_.end() ? latest_->second->turn() : Left::kNothing;
}

ServedPeers::Left ServedPeers::run_all() {
  Left left = Left::kNothing;
  for (auto& [peer, session] : sessions_) left = std::max(left, session->turn());
  // Those that nobody hears run what has come; that they are heard they do not wait for.
  lost_.for_each([&left](ServedPeer& session) {
    const Left last = session.turn();
    if (last == Left::kMore || (last == Left::kHeld && session.waits_for_time())) left = std::max(left, last);
  });
  return left;
}

void ServedPeers::drop_ended() {
  end_attempts();
  end_lost();
  if (leaving_.empty()) return;
  if (std::erase_if(leaving_, [](const auto& session) { return session->has_ended(); }) != 0) count_sessions();
}

void ServedPeers::stop() noexcept {
  for (auto& [peer, session] : sessions_) session->stop();
  lost_.for_each([](ServedPeer& session) { session.stop(); });
  sessions_.clear();
  lost_.clear();
  resuming_.clear();
  latest_ = sessions_.end();
  leaving_.clear();
  count_sessions();
}

}  // namespace fairlead::datapath::command
