#include "datapath/engine/engine_impl.h"

#include <fmt/format.h>
#include <netdb.h>
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
constexpr std::chrono::seconds kAcceptPause{1};
constexpr int kAcceptBatch = 16;
constexpr std::size_t kProbeBytes = 8;
constexpr std::size_t kMaxAddresses = 8;  // of a host, that are tried

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

void add(PeerStats& total, const PeerStats& more) {
  for (auto field :
       {&PeerStats::bytes_written, &PeerStats::bytes_read, &PeerStats::messages_sent, &PeerStats::messages_received,
        &PeerStats::transfers_completed, &PeerStats::transfers_failed, &PeerStats::failovers,
        &PeerStats::replayed_transfers, &PeerStats::duplicate_notifications_dropped, &PeerStats::staged_bytes}) {
    total.*field += more.*field;
  }
}

}  // namespace

// ---- beginning and end
// -----------------------------------------------------------------------------------------------

EngineImpl::EngineImpl(EngineConfig config)
    : config_(std::move(config)),
      regions_(std::make_shared<RegionTable>()),
      probe_memory_(2 * kProbeBytes),
      control_epoll_(UniqueFd(::epoll_create1(EPOLL_CLOEXEC))),
      lane_(*this, config_.progress, config_.spin) {
  if (config_.name.empty()) config_.name = default_name();
  if (config_.tcp.host.empty()) config_.tcp.host = data_host(config_.listen);
  transports_.reserve(kMaxTransports);
}

Result<std::shared_ptr<EngineImpl>> EngineImpl::create(EngineConfig config) {
  if (Status valid = config.validate(); !valid.ok()) return valid;
  if (Status valid = validate_transports(config); !valid.ok()) return valid;
  std::shared_ptr<EngineImpl> engine(new EngineImpl(std::move(config)));
  if (!engine->control_epoll_ || !engine->queues_.valid()) {
    return Status(Code::kResourceExhausted, "no file descriptors left; raise `ulimit -n`");
  }
  // A pool outlives the engine while somebody holds a buffer of it.
  auto* table = engine->regions_.get();
  engine->pool_ = std::make_shared<memreg::Pool>(
      engine->config_.pool_arena_bytes, [table](std::span<std::byte> arena) -> Result<std::shared_ptr<void>> {
        Result<std::shared_ptr<RegisteredRange>> range = table->add(arena, Access::kRemoteReadWrite);
        if (!range) return range.error();
        return std::shared_ptr<void>(std::move(*range));
      });
  if (Status opened = engine->open_all(); !opened.ok()) return opened;
  if (Status listening = engine->listen(); !listening.ok()) return listening;
  engine->lane_.watch(engine->control_epoll_.get());
  engine->lane_.start();
  return engine;
}

EngineImpl::~EngineImpl() { shut_down(); }

Status EngineImpl::open_all() {
  for (const std::string& name : transports_to_open(config_)) {
    Status opened = open_transport(name);
    if (opened.ok()) continue;
    // What was asked for must be there; tcp behind it, or one device of several, need not.
    const bool asked = name == config_.transport || transports_.empty();
    if (asked && !(config_.transport == "auto" && name != "tcp")) return opened;
    log(LogLevel::kWarning, fmt::format("{} is not used: {}", name, opened.message()));
  }
  return {};
}

Status EngineImpl::open_transport(const std::string& name) {
  if (transports_.size() == kMaxTransports) {
    return {Code::kResourceExhausted, fmt::format("{} transports are open, the limit", kMaxTransports)};
  }
  Result<std::unique_ptr<Transport>> opened = datapath::open_transport(name, config_);
  if (!opened) return opened.error();
  OpenTransport open;
  open.transport = std::move(*opened);
  open.offer = offer_of(*open.transport);
  const std::span<std::byte> memory(probe_memory_);
  Result<Registration> target = open.transport->register_region(memory.first(kProbeBytes), Access::kRemoteWrite);
  if (!target) return target.error();
  Result<Registration> source = open.transport->register_region(memory.subspan(kProbeBytes), Access::kNone);
  if (!source) return source.error();
  open.probe = *target;
  if (Status attached = regions_->attach(transports_.size(), *open.transport); !attached.ok()) return attached;
  probe_sources_.push_back(*source);
  lane_.watch(open.transport->wait_fd());
  transports_.push_back(std::move(open));
  return {};
}

void EngineImpl::open_for_peer(const std::vector<Offer>& theirs) {
  const auto has = [&](const char* kind) {
    return std::any_of(transports_.begin(), transports_.end(),
                       [&](const OpenTransport& open) { return open.offer.kind == kind; });
  };
  const bool wanted = std::any_of(theirs.begin(), theirs.end(), [](const Offer& o) { return o.kind == "verbs"; });
  if (!wanted || has("verbs") || config_.transport != "auto") return;
  if (Status opened = open_transport("verbs:soft0"); !opened.ok()) {
    log(LogLevel::kWarning, fmt::format("a peer offers verbs, but here {}", opened.message()));
  }
}

Status EngineImpl::listen() {
  if (config_.listen.empty()) return {};
  Result<HostPort> at = parse_host_port(config_.listen);
  if (!at) return at.error();
  Result<UniqueFd> fd = start_listen(at->host == "localhost" ? "127.0.0.1" : at->host, at->port);
  if (!fd) return fd.error();
  listener_ = PrivateFd(std::move(*fd));
  listen_address_ = socket_address(listener_.get(), false);
  watch_listener();
  return {};
}

void EngineImpl::watch_listener() {
  epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
  ::epoll_ctl(control_epoll_.get(), EPOLL_CTL_ADD, listener_.get(), &event);
  accept_again_at_ = Clock::time_point::max();
}

void EngineImpl::shut_down() {
  if (inherited()) return;
  const std::lock_guard once(shutting_down_);
  if (stopped_.exchange(true)) return;
  std::vector<std::thread> resolvers;
  {
    const std::lock_guard lock(mutex_);
    resolvers.swap(resolvers_);
  }
  for (std::thread& thread : resolvers) thread.join();
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
    for (const auto& session : std::exchange(live_, {})) session->abandon();
    for (std::size_t t = 0; t < transports_.size(); ++t) {
      Transport& transport = *transports_[t].transport;
      lane_.unwatch(transport.wait_fd());
      transport.deregister_region(transports_[t].probe);
      transport.deregister_region(probe_sources_[t]);
    }
    regions_->shutdown();
    transports_.clear();
    listener_.reset();
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
  auto session = std::make_shared<SessionImpl>(shared_from_this(), true);
  session->start_active(std::string(host_port));
  {
    const std::lock_guard lock(mutex_);
    sessions_.push_back(session);
  }
  const bool numeric = to->host == "localhost" || to->host.find_first_not_of("0123456789.") == std::string::npos ||
                       to->host.find(':') != std::string::npos;
  lane_.submit([this, session, numeric, to = *to] {
    live_.push_back(session);
    if (numeric) session->connect_to({to.host == "localhost" ? "127.0.0.1" : to.host}, to.port);
  });
  if (!numeric) resolve(session, to->host, to->port);
  return session;
}

/// Names are resolved on a thread of their own: the system's resolver blocks for seconds.
void EngineImpl::resolve(std::shared_ptr<SessionImpl> session, std::string host, std::uint16_t port) {
  const std::lock_guard lock(mutex_);
  if (stopped_.load()) return;
  resolvers_.emplace_back([this, session = std::move(session), host = std::move(host), port] {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    const int rc = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
    std::vector<std::string> addresses;
    for (const addrinfo* a = rc == 0 ? list : nullptr; a != nullptr && addresses.size() < kMaxAddresses;
         a = a->ai_next) {
      char numeric[NI_MAXHOST] = "";
      ::getnameinfo(a->ai_addr, a->ai_addrlen, numeric, sizeof numeric, nullptr, 0, NI_NUMERICHOST);
      addresses.emplace_back(numeric);
    }
    if (list != nullptr) ::freeaddrinfo(list);
    lane_.submit([session, rc, addresses = std::move(addresses), host, port] {
      if (rc == 0) return session->connect_to(addresses, port);
      session->fail({Code::kNotFound, fmt::format("no such host '{}': {}", host, ::gai_strerror(rc))});
    });
  });
}

void EngineImpl::accept_connections() {
  // Whoever is left comes with the next round: those who are connected have their turns between.
  for (int turn = 0; turn < kAcceptBatch; ++turn) {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      if (errno == EINTR || errno == ECONNABORTED) continue;
      // Out of descriptors or memory: the listener stays readable, so look away for a while.
      log(LogLevel::kError, fmt::format("cannot accept on {}: {}; trying again in {} s. {} sessions are open; raise "
                                        "`ulimit -n` or systemd LimitNOFILE=",
                                        listen_address_, std::strerror(errno), kAcceptPause.count(), live_.size()));
      ::epoll_ctl(control_epoll_.get(), EPOLL_CTL_DEL, listener_.get(), nullptr);
      accept_again_at_ = Clock::now() + kAcceptPause;
      return;
    }
    auto session = std::make_shared<SessionImpl>(shared_from_this(), false);
    live_.push_back(session);
    session->start_passive(make_control_stream(std::move(fd)));
  }
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

void EngineImpl::session_closed(SessionImpl& session, bool lost) {
  const std::lock_guard lock(mutex_);
  add(ended_, session.stats());
  std::erase_if(sessions_, [&](const auto& other) { return other.get() == &session; });
  if (lost && session.was_ready()) ++peers_lost_;
  if (!session.was_ready() && !session.is_active() && !session.description().name.empty()) ++peers_failed_;
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

std::vector<Offer> EngineImpl::offers() const {
  std::vector<Offer> offers;
  for (const OpenTransport& open : transports_) offers.push_back(open.offer);
  return offers;
}

LocalSegment EngineImpl::probe_source(std::size_t transport) const noexcept {
  return {const_cast<std::byte*>(probe_memory_.data()) + kProbeBytes, kProbeBytes, probe_sources_[transport].local};
}

void EngineImpl::watch_control(const ControlStream& stream, SessionImpl& session, std::uint32_t events, bool first) {
  epoll_event event{.events = events, .data = {.ptr = &session}};
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
      accept_connections();
    } else {
      // Sessions leave live_ only between rounds, so the pointer is good.
      static_cast<SessionImpl*>(events[i].data.ptr)->on_control_ready(events[i].events);
    }
  }
  for (std::size_t s = 0; s < live_.size(); ++s) {
    if (live_[s]->control_pending()) live_[s]->on_control_ready(EPOLLIN);
  }
}

// What a poll leaves to do (buffers, credits, timers) is done at the start of the next round, so that whoever waits for
// what the poll brought goes on at once. Only work that waits for room on a path goes out in the same round.
bool EngineImpl::progress() noexcept {
  const Clock::time_point now = Clock::now();
  const bool tick = now - last_tick_ >= kTick;
  if (tick) last_tick_ = now;
  if (now >= accept_again_at_) watch_listener();
  bool did = false, ended = false;
  for (std::size_t i = 0; i < live_.size(); ++i) {
    if (!tick && !live_[i]->wants_advance()) continue;
    did |= live_[i]->wants_advance();
    live_[i]->advance(now);
    ended |= live_[i]->finished();
  }
  if (ended) std::erase_if(live_, [](const auto& session) { return session->finished(); });

  bool arrived = false;
  // One without paths may have been left something: a completion of the last path's, a stranger's connection.
  for (OpenTransport& open : transports_) {
    if (open.paths != 0 || tick) arrived |= open.transport->poll(*this);
  }
  // After the paths: what they report was there before the peer ended them.
  if (tick || ++rounds_ % kControlRounds == 0) poll_control();
  for (std::size_t i = 0; arrived && i < live_.size(); ++i) {
    if (live_[i]->wants_advance() && live_[i]->has_backlog()) live_[i]->advance(now);
  }
  return did || arrived;
}

bool EngineImpl::arm() noexcept {
  for (OpenTransport& open : transports_) {
    if (!open.transport->arm()) return false;
  }
  return std::none_of(live_.begin(), live_.end(),
                      [](const auto& session) { return session->wants_advance() || session->control_pending(); });
}

milliseconds EngineImpl::sleep_limit() noexcept {
  milliseconds limit = live_.empty() ? kIdleSleep : kBusySleep;
  for (const OpenTransport& open : transports_) {
    const int us = open.transport->wait_timeout_us();
    if (us >= 0) limit = std::min(limit, milliseconds((us + 999) / 1000));
  }
  return limit;
}

void EngineImpl::on_ready(Path& path) noexcept { static_cast<SessionImpl*>(path.user())->on_path_ready(path); }
void EngineImpl::on_completion(Path& path, std::uint64_t id, Code code) noexcept {
  static_cast<SessionImpl*>(path.user())->on_path_completion(path, id, code);
}
void EngineImpl::on_message(Path& path, std::span<const std::byte> bytes) noexcept {
  static_cast<SessionImpl*>(path.user())->on_path_message(path, bytes);
}
void EngineImpl::on_notification(Path& path, std::uint32_t value) noexcept {
  static_cast<SessionImpl*>(path.user())->on_path_notification(path, value);
}
void EngineImpl::on_down(Path& path, Code code, std::string_view reason) noexcept {
  static_cast<SessionImpl*>(path.user())->on_path_down(path, code, reason);
}

}  // namespace fairlead::datapath
