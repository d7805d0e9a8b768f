#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>

#include "datapath/command/service_impl.h"

namespace fairlead::datapath::command {

using fairlead::command::ServiceConfig;
using fairlead::command::ServiceStats;
using fairlead::command::Sharing;

namespace {

constexpr std::chrono::milliseconds kLook{50};       // how often the thread looks whether it is to stop
constexpr std::chrono::microseconds kSpin{50};       // how long it looks for the next message before it sleeps
constexpr std::chrono::microseconds kHeldLook{200};  // the same while a session waits for its client
constexpr std::chrono::seconds kGrace{30};           // for the words that turn a client away

ServerSession::Terms terms_of(const ServiceConfig& config, const EngineConfig& engine) {
  const std::size_t largest = std::min(kMaxPayload, engine.max_message_bytes - sizeof(MessageHeader));
  return {config.channels,
          config.credits,
          config.payload_credit,
          config.held_results,
          static_cast<std::uint32_t>(std::min<std::uint64_t>(largest, config.payload_credit)),
          config.module_bytes,
          config.graph_records,
          config.graph_bytes};
}

ServerSession::Terms terms_for(const fairlead::command::Tenant& tenant, ServerSession::Terms terms) {
  if (tenant.channels != 0) terms.channels = tenant.channels;
  if (tenant.credits != 0) terms.credits = tenant.credits;
  return terms;
}

}  // namespace

ServiceImpl::ServiceImpl(Engine engine, ServiceConfig config)
    : engine_(std::move(engine)),
      config_(std::move(config)),
      terms_(terms_of(config_, engine_.config())),
      turnstile_(config_.sharing != Sharing::kFree
                     ? std::optional<Turnstile>(std::in_place, config_.sharing, config_.longest_turn)
                     : std::nullopt),
      tenants_(config_.tenants, turnstile_ ? &*turnstile_ : nullptr, !config_.program.empty()) {}

void ServiceImpl::start() {
  thread_ = std::thread([this] { thread_main(); });
  ::pthread_setname_np(thread_.native_handle(), "fairlead-serve");
}

void ServiceImpl::stop() noexcept {
  stopping_.store(true);
  engine_.shutdown();  // and with it all waits
  if (thread_.joinable()) thread_.join();
  for (auto& [peer, session] : sessions_) session->stop();
  sessions_.clear();
  latest_ = sessions_.end();
  leaving_.clear();
  count_.store(0);
}

ServiceStats ServiceImpl::stats() const {
  ServiceStats stats;
  stats.sessions = count_.load(std::memory_order_relaxed);
  stats.sessions_begun = counters_.begun.load(std::memory_order_relaxed);
  stats.sessions_refused = counters_.refused.load(std::memory_order_relaxed);
  stats.sessions_ended_wrong = counters_.ended_wrong.load(std::memory_order_relaxed);
  stats.commands = counters_.commands.load(std::memory_order_relaxed);
  stats.failures = counters_.failures.load(std::memory_order_relaxed);
  stats.skipped_unknown = counters_.skipped_unknown.load(std::memory_order_relaxed);
  stats.replies = counters_.replies.load(std::memory_order_relaxed);
  stats.modules_cached = modules_->count();
  stats.modules_sent = modules_->added();
  if (turnstile_) stats.turn_overruns = turnstile_->overruns();
  return stats;
}

Status ServiceImpl::set_tenants(std::vector<fairlead::command::Tenant> tenants) {
  if (Status fine = Tenants::check(tenants, config_.sharing); !fine.ok()) return fine;
  tenants_.replace(std::move(tenants));
  return {};
}

void ServiceImpl::thread_main() {
  const bool in_turn = config_.where == ServiceConfig::Where::kInTurn;
  using Left = ServedPeer::Left;
  Left left = Left::kNothing;
  std::chrono::steady_clock::time_point look_until{};
  while (!stopping_.load(std::memory_order_relaxed)) {
    while (engine_.accept()) {
    }
    const bool looks = left == Left::kMore || std::chrono::steady_clock::now() < look_until;
    const auto patience = looks                 ? std::chrono::nanoseconds(0)
                          : left == Left::kHeld ? std::chrono::nanoseconds(kHeldLook)
                                                : std::chrono::nanoseconds(kLook);
    auto [peer, event] = engine_.next_event(patience);
    const bool came = event.kind != Event::Kind::kNone;
    if (came) {
      handle(peer, std::move(event));
      look_until = std::chrono::steady_clock::now() + kSpin;
    } else if (left == Left::kNothing && looks) {
      ::sched_yield();  // the client may share its core
    }
    if (in_turn && left != Left::kNothing) {
      left = run_all();
    } else if (in_turn && came && latest_ != sessions_.end()) {
      left = latest_->second->turn();
    }
    drop_ended();
  }
}

ServedPeer* ServiceImpl::session_of(const Peer& peer) {
  if (latest_ != sessions_.end() && latest_->first == peer) return latest_->second.get();
  latest_ =
      std::find_if(sessions_.begin(), sessions_.end(), [&](const Served& served) { return served.first == peer; });
  return latest_ != sessions_.end() ? latest_->second.get() : nullptr;
}

void ServiceImpl::handle(const Peer& peer, Event event) {
  ServedPeer* session = session_of(peer);
  switch (event.kind) {
    case Event::Kind::kMessage:
    case Event::Kind::kNotification:
      if (session == nullptr) {
        if (peer.state() == PeerState::kClosed) return;
        begin(peer);
        session = latest_ != sessions_.end() ? latest_->second.get() : nullptr;
        if (session == nullptr) return;
      }
      return session->deliver(std::move(event));
    case Event::Kind::kClosed:
      if (session == nullptr) return;
      session->stop();
      leaving_.push_back(std::move(latest_->second));
      sessions_.erase(latest_);
      latest_ = sessions_.end();
      return count_.store(sessions_.size(), std::memory_order_relaxed);
    default:
      return;
  }
}

/// It is the latest then, or was turned away.
void ServiceImpl::begin(const Peer& peer) {
  if (draining_.load()) return turn_away(peer, {Code::kUnavailable, "it is ending, and takes no new sessions"});
  if (sessions_.size() >= config_.max_sessions) {
    return turn_away(peer, {Code::kResourceExhausted,
                            fmt::format("it has {} sessions, the limit (max_sessions); try again when one has ended",
                                        config_.max_sessions)});
  }
  Result<Admission> admission = tenants_.admit(peer.principal());
  if (!admission) return turn_away(peer, admission.error());
  const ServerSession::Terms terms = terms_for(admission->terms(), terms_);
  sessions_.emplace_back(peer, std::make_unique<ServedPeer>(peer, *std::move(admission), terms, config_, counters_,
                                                            turnstile_ ? &*turnstile_ : nullptr, modules_));
  count_.store(sessions_.size(), std::memory_order_relaxed);
  latest_ = std::prev(sessions_.end());
  if (config_.where == ServiceConfig::Where::kOwnThread) latest_->second->start_thread();
}

void ServiceImpl::turn_away(Peer peer, const Status& why) {
  counters_.refused.fetch_add(1, std::memory_order_relaxed);
  (void)peer.send(refused_message(why), kMessageValue, {.traffic = TrafficClass::kCommands});
  peer.close(kGrace);
}

ServedPeer::Left ServiceImpl::run_all() {
  ServedPeer::Left left = ServedPeer::Left::kNothing;
  for (auto& [peer, session] : sessions_) left = std::max(left, session->turn());
  return left;
}

void ServiceImpl::drop_ended() {
  if (leaving_.empty()) return;
  std::erase_if(leaving_, [](const auto& session) { return session->has_ended(); });
}

}  // namespace fairlead::datapath::command

namespace fairlead::inline v0::command {

using datapath::command::ServiceImpl;

namespace {
ServiceImpl* of(const std::unique_ptr<ServiceBody>& body) noexcept { return static_cast<ServiceImpl*>(body.get()); }
}  // namespace

Result<Service> Service::start(Engine engine, ServiceConfig config) {
  const auto wrong = [](std::string what) { return Status(Code::kInvalidArgument, std::move(what)); };
  if (!config.program.empty() && config.where == ServiceConfig::Where::kInTurn) {
    return wrong("a session in a process of its own has a thread that waits for it: program takes Where::kOwnThread");
  }
  if (!config.executors && config.program.empty())
    return wrong("executors is empty: give what makes a session's executor, as host_executors()");
  if (engine.listen_address().empty()) return wrong("the engine listens nowhere: set EngineConfig::listen");
  if (config.channels == 0 || config.channels > 4096) {
    return wrong(fmt::format("channels is {}, and must be 1 to 4096", config.channels));
  }
  if (config.credits < 64 || config.credits > 65536) {
    return wrong(fmt::format("credits is {}, and must be 64 to 65536", config.credits));
  }
  if (config.payload_credit < 4096 || config.held_results < config.payload_credit) {
    return wrong(fmt::format("payload_credit is {} and held_results {}: 4096 <= payload_credit <= held_results",
                             config.payload_credit, config.held_results));
  }
  if (Status fine = datapath::command::Tenants::check(config.tenants, config.sharing); !fine.ok()) return fine;
  if (config.sharing != Sharing::kFree && config.where == ServiceConfig::Where::kInTurn) {
    return wrong("who shares a device waits for a turn: sharing takes Where::kOwnThread, or is kFree");
  }
  if (config.longest_turn.count() <= 0) {
    return wrong(fmt::format("longest_turn is {} ms, and must be above 0", config.longest_turn.count()));
  }
  auto impl = std::make_unique<ServiceImpl>(std::move(engine), std::move(config));
  impl->start();
  return Service(std::move(impl));
}

Service::Service(std::unique_ptr<ServiceBody> body) noexcept : body_(std::move(body)) {}
Service::Service(Service&&) noexcept = default;
Service& Service::operator=(Service&&) noexcept = default;
Service::~Service() = default;

std::string Service::listen_address() const { return body_ != nullptr ? of(body_)->listen_address() : std::string(); }
Engine& Service::engine() noexcept { return of(body_)->engine(); }
ServiceStats Service::stats() const { return body_ != nullptr ? of(body_)->stats() : ServiceStats(); }
std::vector<TenantStats> Service::tenants() const {
  return body_ != nullptr ? of(body_)->tenants() : std::vector<TenantStats>();
}
Status Service::set_tenants(std::vector<Tenant> tenants) {
  if (body_ == nullptr) return {Code::kInvalidArgument, "this service was moved away"};
  return of(body_)->set_tenants(std::move(tenants));
}
void Service::drain() noexcept {
  if (body_ != nullptr) of(body_)->drain();
}
void Service::stop() noexcept {
  if (body_ != nullptr) of(body_)->stop();
}

}  // namespace fairlead::inline v0::command
