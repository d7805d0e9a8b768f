#include "datapath/engine/engine_impl.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "datapath/engine/factory.h"
#include "datapath/engine/handles.h"
#include "datapath/session/control_socket.h"
#include "fairlead/log.h"

namespace fairlead::datapath {

using std::chrono::milliseconds;

namespace {

constexpr milliseconds kTick{1};
constexpr milliseconds kBusySleep{20};  // with sessions: their timers are this coarse while the lane sleeps
constexpr milliseconds kIdleSleep{500};
constexpr std::uint64_t kControlRounds = 32;  // the control connections are looked at every so many rounds
constexpr milliseconds kShutDownWait{2000};

std::string default_name() {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return fmt::format("{}/{}", host, ::getpid());
}

/// Peers dial the data port of the end that listens, at the address that it listens on; of others nobody does.
std::string data_host(const std::string& listen) {
  if (listen.empty()) return "127.0.0.1";
  const Result<HostPort> at = parse_host_port(listen);
  return !at ? std::string() : at->host == "localhost" ? "127.0.0.1" : at->host;
}

/// Whether a peer of that principal (empty: an anonymous one) began it.
bool is_from(SessionImpl& session, const std::string& principal) {
  return !session.is_active() && session.id() != 0 && !session.finished() &&
         session.description().principal == principal;
}

void add(PeerStats& total, const PeerStats& more) {
  for (auto field :
       {&PeerStats::bytes_written, &PeerStats::bytes_read, &PeerStats::messages_sent, &PeerStats::messages_received,
        &PeerStats::transfers_completed, &PeerStats::transfers_failed, &PeerStats::recoveries, &PeerStats::failovers,
        &PeerStats::failbacks, &PeerStats::resumptions, &PeerStats::replayed_transfers,
        &PeerStats::duplicate_notifications_dropped, &PeerStats::staged_bytes, &PeerStats::rail_bytes,
        &PeerStats::atomics, &PeerStats::atomics_served}) {
    total.*field += more.*field;
  }
}

}  // namespace

// ---- beginning and end
// -----------------------------------------------------------------------------------------------

EngineImpl::EngineImpl(EngineConfig config)
    : config_(std::move(config)),
      regions_(std::make_shared<RegionTable>()),
      transports_(*regions_, lane_),
      control_epoll_(UniqueFd(::epoll_create1(EPOLL_CLOEXEC))),
      lane_(*this, config_.progress, config_.spin) {
  if (config_.name.empty()) config_.name = default_name();
  if (config_.tcp.host.empty()) config_.tcp.host = data_host(config_.listen);
}

Result<std::shared_ptr<EngineImpl>> EngineImpl::create(EngineConfig config) {
  if (Status valid = config.validate(); !valid.ok()) return valid;
  if (Status valid = validate_transports(config); !valid.ok()) return valid;
  Result<Principals> known = known_by(config);
  if (!known) return known.error();
  std::shared_ptr<EngineImpl> engine(new EngineImpl(std::move(config)));
  engine->principals_ = *std::move(known);
  if (!engine->control_epoll_ || !engine->queues_.valid()) {
    return Status(Code::kResourceExhausted, "no file descriptors left; raise `ulimit -n`");
  }
  // A pool outlives the engine while somebody holds a buffer of it.
  auto* table = engine->regions_.get();
  engine->pool_ = std::make_shared<memreg::Pool>(engine->config_.pool_arena_bytes,
                                                 [table](std::span<std::byte> arena) -> Result<std::shared_ptr<void>> {
                                                   Result<std::shared_ptr<RegisteredRange>> range =
                                                       table->add({.bytes = arena, .access = Access::kRemoteReadWrite});
                                                   if (!range) return range.error();
                                                   return std::shared_ptr<void>(std::move(*range));
                                                 });
  if (Status opened = engine->transports_.open_all(engine->config_); !opened.ok()) return opened;
  if (!engine->config_.listen.empty()) {
    Status listening = engine->listener_.open(engine->config_.listen, engine->control_epoll_.get());
    if (!listening.ok()) return listening;
  }
  engine->lane_.watch(engine->control_epoll_.get());
  engine->lane_.start();
  return engine;
}

EngineImpl::~EngineImpl() { shut_down(); }

void EngineImpl::shut_down() {
  if (inherited()) return;
  const std::lock_guard once(shutting_down_);
  if (stopped_.exchange(true)) return;
  resolver_.stop();
  lane_.stop();
  // From here on this thread drives alone.
  const Clock::time_point deadline = Clock::now() + kShutDownWait;
  bool going = true;
  lane_.call([this] {
    for (const auto& session : std::vector(live_)) session->shut_down();
  });
  while (going && Clock::now() < deadline) {
    lane_.call([&] {
      progress();
      going = !live_.empty();
    });
    if (going) std::this_thread::yield();
  }
  lane_.call([this] {
    strangers_.clear();
    cut_.clear();
    for (const auto& session : std::exchange(live_, {})) session->abandon();
    transports_.close();
    listener_.close();
  });
  {
    const std::lock_guard lock(mutex_);
    sessions_.clear();
  }
  queues_.clear([](Submission& transfer) { drop_reference(static_cast<TransferImpl&>(transfer)); });
}

// ---- sessions
// --------------------------------------------------------------------------------------------------------

Result<std::shared_ptr<SessionImpl>> EngineImpl::connect(std::string_view host_port) {
  Result<HostPort> to = parse_host_port(host_port);
  if (!to) return to.error();
  if (to->host.empty() || to->port == 0) {
    return Status(Code::kInvalidArgument, fmt::format("'{}' names no host and port to connect to", host_port));
  }
  if (stopped_.load()) return Status(Code::kUnavailable, "the engine is shut down");
  std::shared_ptr<SessionImpl> session;
  {
    const std::lock_guard lock(mutex_);
    if (sessions_.size() >= config_.max_sessions) return too_many_sessions();
    session = sessions_.emplace_back(std::make_shared<SessionImpl>(shared_from_this(), true, std::string(host_port)));
  }
  const bool numeric = to->host == "localhost" || to->host.find_first_not_of("0123456789.") == std::string::npos ||
                       to->host.find(':') != std::string::npos;
  lane_.submit([this, session, numeric, to = *to] {
    live_.push_back(session);
    if (numeric) session->connect_to({to.host == "localhost" ? "127.0.0.1" : to.host}, to.port);
  });
  if (numeric) return session;
  resolver_.resolve(to->host, [this, session, port = to->port](Result<std::vector<std::string>> found) {
    lane_.submit([session, port, found = std::move(found)] {
      if (found) return session->connect_to(*found, port);
      session->fail(found.error());
    });
  });
  return session;
}

/// Who said hello, or is gone, is no stranger any more.
void EngineImpl::greet_strangers() {
  std::erase_if(strangers_, [](const auto& session) { return session->finished() || session->id() != 0; });
}

Status EngineImpl::too_many_sessions() const {
  return {Code::kResourceExhausted, fmt::format("{} has {} sessions already; close some, or raise its max_sessions",
                                                config_.name, config_.max_sessions)};
}

Status EngineImpl::admit_peer(const std::string& principal) {
  greet_strangers();  // who asks is still among them
  // Who lost its connection, and comes anew instead of going on, is not kept out by the session that waits for it.
  const std::string_view gives_way = "another of its principal took its place";
  if (live_.size() - strangers_.size() >= config_.max_sessions && !end_oldest_cut(principal, gives_way)) {
    return too_many_sessions();
  }
  if (config_.max_principal_sessions == 0) return {};
  const auto same =
      std::count_if(live_.begin(), live_.end(), [&](const auto& other) { return is_from(*other, principal); });
  if (static_cast<std::size_t>(same) < config_.max_principal_sessions) return {};
  if (end_oldest_cut(principal, gives_way)) return {};
  return {Code::kResourceExhausted,
          fmt::format("{} has {} sessions already that {} began; close some, or raise its max_principal_sessions",
                      config_.name, same, principal.empty() ? "anonymous peers" : "'" + principal + "'")};
}

void EngineImpl::accept(UniqueFd connection) {
  greet_strangers();
  if (strangers_.size() >= config_.max_handshakes) {
    handshake_refused();
    // The oldest: an honest peer says hello at once. It stays in live_ for the rest of the round.
    const auto oldest = strangers_.front();
    oldest->abandon({Code::kCancelled, fmt::format("dropped {}: {} connections have not said hello (max_handshakes)",
                                                   oldest->description().address, strangers_.size())});
    strangers_.erase(strangers_.begin());
  }
  auto session = std::make_shared<SessionImpl>(shared_from_this(), false);
  live_.push_back(session);
  strangers_.push_back(session);
  session->start_passive(make_control_stream(std::move(connection)));
}

std::shared_ptr<SessionImpl> EngineImpl::find_session(std::uint64_t id) {
  const auto at = std::find_if(live_.begin(), live_.end(), [&](const auto& session) {
    return !session->is_active() && id != 0 && session->id() == id && !session->finished();
  });
  return at != live_.end() ? *at : nullptr;
}

/// Those that are whole again, or gone.
void EngineImpl::forget_cut() {
  std::erase_if(cut_, [](const auto& each) { return each->finished() || !each->link().is_cut(); });
}

void EngineImpl::session_cut(SessionImpl& session) {
  const std::string principal = session.description().principal;
  forget_cut();
  cut_.push_back(std::static_pointer_cast<SessionImpl>(session.shared_from_this()));
  const auto same =
      std::count_if(cut_.begin(), cut_.end(), [&](const auto& other) { return is_from(*other, principal); });
  if (static_cast<std::size_t>(same) <= config_.max_cut_sessions) return;
  end_oldest_cut(principal, fmt::format("no more than {} such sessions of a principal are kept (max_cut_sessions)",
                                        config_.max_cut_sessions));
}

/// Of a principal, if it has any. It is none of them any more, though it may take a while to end.
bool EngineImpl::end_oldest_cut(const std::string& principal, std::string_view because) {
  const auto at = std::find_if(cut_.begin(), cut_.end(), [&](const auto& other) { return is_from(*other, principal); });
  if (at == cut_.end()) return false;
  const std::shared_ptr<SessionImpl> oldest = *at;
  cut_.erase(at);
  oldest->fail({Code::kPeerDied,
                fmt::format("lost {}: its control connection broke, and {}", oldest->description().name, because)});
  return true;
}

void EngineImpl::session_ready(SessionImpl& session) {
  {
    const std::lock_guard lock(mutex_);
    ++peers_connected_;
    if (session.is_active()) return;
    sessions_.push_back(std::static_pointer_cast<SessionImpl>(session.shared_from_this()));
  }
  queues_.push_accepted(session.shared_from_this());
}

void EngineImpl::session_closed(SessionImpl& session, Ended how) {
  const std::lock_guard lock(mutex_);
  add(ended_, session.stats());
  std::erase_if(sessions_, [&](const auto& other) { return other.get() == &session; });
  if (how == Ended::kLost) ++peers_lost_;
  if (how == Ended::kFailed && !session.is_active() && !session.description().name.empty()) ++peers_failed_;
}

// ---- what operators see
// ----------------------------------------------------------------------------------------------

std::vector<std::shared_ptr<SessionImpl>> EngineImpl::sessions() const {
  const std::lock_guard lock(mutex_);
  return sessions_;
}

std::vector<DeviceInfo> EngineImpl::devices(std::string_view peer) const { return list_devices(config_, peer); }

EngineStats EngineImpl::stats() const {
  EngineStats stats;
  {
    const std::lock_guard lock(mutex_);
    stats.total = ended_;
    stats.peers_connected = peers_connected_;
    stats.peers_lost = peers_lost_;
    stats.peers_failed = peers_failed_;
    for (const auto& session : sessions_) {
      add(stats.total, session->stats());
    }
  }
  stats.transports = transports_.stats();
  stats.sleeps = lane_.sleeps();
  stats.handshakes_refused = handshakes_refused_.load(std::memory_order_relaxed);
  stats.registered_bytes = regions_->registered_bytes();
  const memreg::Pool::Stats pool = pool_->stats();
  stats.pool_bytes = pool.arena_bytes;
  stats.pool_bytes_used = pool.used_bytes;
  return stats;
}

// ---- driving
// ---------------------------------------------------------------------------------------------------------

void EngineImpl::watch_control(const ControlStream& stream, ControlLink& link, std::uint32_t events, bool first) {
  epoll_event event{.events = events, .data = {.ptr = &link}};
  ::epoll_ctl(control_epoll_.get(), first ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, stream.fd(), &event);
}

void EngineImpl::unwatch_control(const ControlStream& stream) {
  ::epoll_ctl(control_epoll_.get(), EPOLL_CTL_DEL, stream.fd(), nullptr);
}

Result<std::unique_ptr<ControlStream>> EngineImpl::dial(const std::string& numeric_host, std::uint16_t port) {
  Result<UniqueFd> fd = start_connect(numeric_host, port);
  if (!fd) return fd.error();
  return make_control_stream(std::move(*fd));
}

void EngineImpl::poll_control() {
  epoll_event events[32];
  const int n = ::epoll_wait(control_epoll_.get(), events, 32, 0);
  for (int i = 0; i < n; ++i) {
    if (events[i].data.ptr == nullptr) {
      listener_.accept(live_.size(), [this](UniqueFd connection) { accept(std::move(connection)); });
    } else {
      // Sessions leave live_ only between rounds, so the pointer is good.
      static_cast<ControlLink*>(events[i].data.ptr)->on_ready(events[i].events);
    }
  }
  for (std::size_t s = 0; s < live_.size(); ++s) {
    if (live_[s]->link().pending()) live_[s]->link().on_ready(EPOLLIN);
  }
}

// What a poll leaves to do (buffers, credits, timers) is done at the start of the next round, so that whoever waits for
// what the poll brought goes on at once. Only work that waits for room on a path goes out in the same round.
bool EngineImpl::progress() noexcept {
  const Clock::time_point now = Clock::now();
  const bool tick = now - last_tick_ >= kTick;
  if (tick) last_tick_ = now;
  listener_.advance(now);
  bool did = false, ended = false;
  for (std::size_t i = 0; i < live_.size(); ++i) {
    if (!tick && !live_[i]->wants_advance()) continue;
    did |= live_[i]->wants_advance();
    live_[i]->advance(now);
    ended |= live_[i]->finished();
  }
  if (ended) {
    std::erase_if(live_, [](const auto& session) { return session->finished(); });
    greet_strangers();
    forget_cut();
  }

  const bool arrived = transports_.poll(tick);
  // After the paths: what they report was there before the peer ended them.
  if (tick || ++rounds_ % kControlRounds == 0) poll_control();
  for (std::size_t i = 0; arrived && i < live_.size(); ++i) {
    if (live_[i]->wants_advance() && live_[i]->has_backlog()) live_[i]->advance(now);
  }
  return did || arrived;
}

bool EngineImpl::arm() noexcept {
  return transports_.arm() && std::none_of(live_.begin(), live_.end(), [](const auto& session) {
           return session->wants_advance() || session->link().pending();
         });
}

milliseconds EngineImpl::sleep_limit() noexcept {
  return transports_.sleep_limit(live_.empty() ? kIdleSleep : kBusySleep);
}

}  // namespace fairlead::datapath
