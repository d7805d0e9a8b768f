#include "datapath/engine/engine_impl.h"

#include <fmt/format.h>
#include <unistd.h>

#include "datapath/engine/factory.h"
#include "datapath/engine/find_places.h"
#include "datapath/engine/handles.h"
#include "datapath/placement/used_nics.h"
#include "datapath/session/control_socket.h"

namespace fairlead::datapath {

using std::chrono::milliseconds;

namespace {

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

/// Which addresses say over which NICs they go: of tcp the one that peers dial, of softroce those that it was given.
std::vector<UsedTransport> used_transports(const EngineConfig& config, const std::vector<Offer>& offers) {
  std::vector<UsedTransport> used;
  for (const Offer& offer : offers) {
    const bool tcp = offer.kind == "tcp";
    const std::string host = tcp && !config.listen.empty() ? config.tcp.host : "";
    const bool any = !is_address(host) || host == "0.0.0.0" || host == "::";
    const bool everywhere = tcp ? any : offer.software && config.verbs.soft_address.empty();
    used.push_back({offer.name, tcp ? std::vector{host} : offer.addresses, everywhere});
  }
  return used;
}

EngineConfig completed(EngineConfig config) {
  if (config.name.empty()) config.name = default_name();
  if (config.tcp.host.empty()) config.tcp.host = data_host(config.listen);
  return config;
}

}  // namespace

// ---- beginning and end ---------------------------------------------------------------------------------------------

EngineImpl::EngineImpl(EngineConfig config)
    : commons_(completed(std::move(config))), cache_(*commons_.regions, commons_.config.cached_bytes) {}

Result<std::shared_ptr<EngineImpl>> EngineImpl::create(EngineConfig config) {
  if (Status valid = config.validate(); !valid.ok()) return valid;
  if (Status valid = validate_transports(config); !valid.ok()) return valid;
  Result<Principals> known = known_by(config);
  if (!known) return known.error();
  std::shared_ptr<EngineImpl> engine(new EngineImpl(std::move(config)));
  if (Status opened = engine->open(*std::move(known)); !opened.ok()) return opened;
  return engine;
}

Status EngineImpl::open(Principals known) {
  for (std::size_t i = 0; i < config().lanes; ++i) {
    EngineLane& lane = *lanes_.emplace_back(std::make_unique<EngineLane>(commons_, fork_, i, known));
    if (!lane.valid()) {
      return {Code::kResourceExhausted,
              fmt::format("no descriptors for lane {} of the engine, or no room to watch them; raise `ulimit -n`, or "
                          "fs.epoll.max_user_watches (sysctl)",
                          i)};
    }
    commons_.devices.add_lane(lane.ways());
    sinks_.add(lane.queues());
  }
  commons_.principals.replace(std::move(known));
  if (Status opened = commons_.devices.open_all(config()); !opened.ok()) return opened;
  if (Status placed = commons_.placement.plan(config(), used_transports(config(), commons_.devices.offers()));
      !placed.ok()) {
    return placed;
  }
  pool_ = make_pool();
  const bool listens = !config().listen.empty();
  if (listens) {
    Status listening = listener_.open(config().listen, lanes_.front()->control_epoll());
    if (!listening.ok()) return listening;
  }
  for (const auto& lane : lanes_) {
    Status started = lane->start(weak_from_this(), listens && lane == lanes_.front() ? &listener_ : nullptr,
                                 [this](UniqueFd connection) { least_loaded().enter(std::move(connection)); });
    if (!started.ok()) return started;
  }
  commons_.placement.say();
  return {};
}

EngineImpl::~EngineImpl() {
  shut_down();
  if (!fork_.inherited()) return;
  for (std::unique_ptr<DeviceStaging>& each : staging_) static_cast<void>(each.release());  // CUDA is not to be called
}

void EngineImpl::shut_down() {
  if (fork_.inherited()) return;
  const std::lock_guard once(shutting_down_);
  if (commons_.stopped.exchange(true)) return;
  commons_.waiters.wake_all();
  resolver_.stop();
  for (const auto& lane : lanes_) lane->lane().stop();
  // From here on nobody drives but this thread, and applications that poll.
  const Clock::time_point deadline = Clock::now() + kShutDownWait;
  for (const auto& lane : lanes_) {
    lane->lane().call([&lane] {
      for (const auto& session : std::vector(lane->sessions())) session->shut_down();
    });
  }
  for (bool going = true; going && Clock::now() < deadline;) {
    going = false;
    for (const auto& lane : lanes_) {
      lane->lane().call([&] {
        lane->progress();
        going |= !lane->sessions().empty();
      });
    }
    if (going) std::this_thread::yield();
  }
  for (const auto& lane : lanes_) lane->lane().call([&lane] { lane->close(); });
  lanes_.front()->lane().call([this] { listener_.close(); });  // an application that polls drives, too
  commons_.placement.release();
  cache_.close();
  end_staging();
  commons_.devices.close();
  commons_.sessions.clear();
  for (const auto& lane : lanes_) {
    lane->queues().end([](Submission& transfer) { drop_reference(static_cast<TransferImpl&>(transfer)); });
  }
}

// ---- sessions ------------------------------------------------------------------------------------------------------

/// Of those that have as few, the next in turn.
EngineLane& EngineImpl::least_loaded() noexcept {
  const std::size_t first = lanes_.size() > 1 ? turn_.fetch_add(1, std::memory_order_relaxed) : 0;
  EngineLane* least = lanes_[first % lanes_.size()].get();
  for (std::size_t i = 1; i < lanes_.size(); ++i) {
    EngineLane* const lane = lanes_[(first + i) % lanes_.size()].get();
    if (lane->load() < least->load()) least = lane;
  }
  return *least;
}

Result<std::shared_ptr<SessionImpl>> EngineImpl::connect(std::string_view host_port) {
  const Result<std::vector<HostPort>> to = parse_places(host_port);
  if (!to) return to.error();
  if (commons_.stopped.load()) return Status(Code::kUnavailable, "the engine is shut down");
  EngineLane& lane = least_loaded();
  const std::shared_ptr<SessionImpl> session = lane.make_session(true, std::string(host_port));
  if (Status begun = commons_.sessions.begin(session); !begun.ok()) return begun;
  lane.enter(session, [](SessionImpl&) {});
  find_places(*to, resolver_, [&lane, session](Result<std::vector<Place>> found) {
    lane.lane().submit([session, found = std::move(found)] {
      if (found) return session->connect_to(*found);
      session->fail(found.error());
    });
  });
  return session;
}

// ---- what operators see --------------------------------------------------------------------------------------------

std::vector<DeviceInfo> EngineImpl::devices(std::string_view peer) const { return list_devices(config(), peer); }

EngineStats EngineImpl::stats() const {
  EngineStats stats;
  commons_.sessions.add_to(stats);
  for (const auto& lane : lanes_) {
    for (TransportStats& each : lane->ways().stats()) stats.transports.push_back(std::move(each));
    stats.sleeps += lane->lane().sleeps();
  }
  stats.registered_bytes = commons_.regions->registered_bytes();
  add_cuda_to(stats);
  stats.pool = pool_stats();
  stats.pool_bytes = stats.pool.bytes;
  stats.pool_bytes_used = stats.pool.used_bytes;
  stats.cache = cache_.counters();
  return stats;
}

}  // namespace fairlead::datapath
