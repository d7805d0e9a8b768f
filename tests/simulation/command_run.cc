#include "command_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "command_client.h"
#include "command_device.h"
#include "datapath/command/served_peers.h"
#include "datapath/engine/handles.h"
#include "sim_host.h"
#include "sim_stream.h"

namespace fairlead::simulation {

using datapath::SessionImpl;
using datapath::command::ServedPeers;
using Kind = CommandTrouble::Kind;

CommandOutcome& CommandOutcome::operator+=(const CommandOutcome& other) {
  if (wrong.empty()) wrong = other.wrong;
  for (auto count :
       {&CommandOutcome::sessions, &CommandOutcome::lost, &CommandOutcome::refused, &CommandOutcome::resumed,
        &CommandOutcome::failovers, &CommandOutcome::commands, &CommandOutcome::failures, &CommandOutcome::recovered,
        &CommandOutcome::lived_through, &CommandOutcome::gone_on, &CommandOutcome::graphs_run,
        &CommandOutcome::graphs_updated, &CommandOutcome::placed, &CommandOutcome::across}) {
    this->*count += other.*count;
  }
  for (std::size_t i = 0; i < troubles.size(); ++i) troubles[i] += other.troubles[i];
  return *this;
}

namespace {

constexpr int kRoundsAtMost = 3'000'000;
constexpr milliseconds kPeerTimeout{1000};
constexpr std::chrono::seconds kPatience{500};  // for all of it
constexpr std::chrono::seconds kKept{90};       // sessions, while their clients are away

thread_local const World* world_of_services = nullptr;
Clock::time_point now_there() { return world_of_services->now(); }

/// A session of a client, from its connection on.
struct Attempt {
  std::shared_ptr<SessionImpl> ends[2];              // the client's, the server's; the last of them
  std::vector<std::shared_ptr<SessionImpl>> before;  // the client's that were lost
  SimStream::Line line;
  std::shared_ptr<DeviceLog> log;  // null: the service did not take it
  struct Device {
    std::shared_ptr<bool> lost = std::make_shared<bool>(false);
    bool given = false;
  };
  std::array<Device, kDevices> devices;
  std::unique_ptr<CommandClient> client;
  std::size_t lane = 0;
  std::size_t wounds = 0;
  bool troubled = false;
  bool doomed = false;    // it may end too early,
  bool hopeless = false;  // also where it outlives its peer
};

struct ClientState {
  std::unique_ptr<Attempt> attempt;
  Clock::time_point next_try{};
  bool done = false;
};

class CommandRun {
 public:
  explicit CommandRun(const CommandPlan& plan) : plan_(plan), world_(plan.timing), wire_(world_) {
    world_of_services = &world_;
    config_.path_timeout = milliseconds(20);
    config_.connect_timeout = milliseconds(200'000);
    config_.peer_timeout = kPeerTimeout;
    config_.chunk_bytes = plan.chunk_bytes;
    config_.paths = plan.paths;
    config_.max_pending_events = plan.window;
    config_.max_message_bytes = kMostMessage;
    config_.max_pending_bytes = plan.window_bytes;
    for (const Program& program : plan.programs) expected_.push_back(run_undisturbed(program));
    for (std::size_t i = 0; plan.principals && i < plan.programs.size(); ++i) {
      keys_ += fmt::format("{} {:064x}\n", principal_of(i), 1 + i);
    }
    clients_.resize(plan.programs.size());
    for (std::size_t i = 0; i < clients_.size(); ++i) boot_client(i);
    boot_server();
    fired_.resize(plan.troubles.size());
  }
  ~CommandRun() { world_of_services = nullptr; }

  CommandOutcome run() {
    const Clock::time_point until = world_.now() + kPatience;
    const auto in_time = [&] {
      if (world_.now() > until) wrong(fmt::format("it does not come to its end: {}", unfinished()));
      return fine();
    };
    while (!(all_done() && pending_ == 0) && in_time()) round();
    if (plan_.outlives && service_ != nullptr) service_->drain();  // nobody comes back any more
    while (!freed() && in_time()) round();
    if (outcome_.wrong.empty()) check_end();
    outcome_.graphs_run = devices_.graphs_run;
    outcome_.graphs_updated = devices_.graphs_updated;
    outcome_.placed = devices_.placed;
    let_go();
    return outcome_;
  }

 private:
  // ---- engines, the service, sessions

  static std::string principal_of(std::size_t client) { return fmt::format("client{}", client); }

  std::shared_ptr<SimHost> boot(const std::string& name, const std::string& principal) {
    config_.name = name;
    config_.principal = principal;
    auto host = std::make_shared<SimHost>(world_, wire_, config_, plan_.transports, keys_);
    all_hosts_.push_back(host);
    return host;
  }
  void boot_client(std::size_t i) {
    hosts_.resize(std::max(hosts_.size(), i + 1));
    hosts_[i] = boot(fmt::format("client {}", i), plan_.principals ? principal_of(i) : "");
    hosts_[i]->dial_again = [this, i](const datapath::Place& place) { return dial(i, place); };
  }
  void boot_server() {
    for (auto& lane : lanes_) lane = boot("server", "");
    lanes_[1]->joins(*lanes_[0]);
    lanes_[0]->other_lane = lanes_[1];
    lanes_[1]->other_lane = lanes_[0];
    command::ServiceConfig config;
    config.where = command::ServiceConfig::Where::kInTurn;
    config.channels = 4;
    config.credits = plan_.credits;
    config.payload_credit = plan_.payload_credit;
    config.held_results = plan_.held_results;
    for (std::size_t i = 0; plan_.principals && i < clients_.size(); ++i) {
      command::Tenant tenant{.name = principal_of(i), .memory_bytes = kMostMemory};
      if (plan_.outlives) tenant.memory_bytes *= 10;  // what killed ones had is kept
      tenant.sessions = plan_.one_session ? 1 : 0;
      tenant.bytes_per_second = plan_.bytes_per_second;
      config.tenants.push_back(std::move(tenant));
    }
    config.keep_away = kKept;
    config.most_away = 64;
    for (std::uint32_t i = 0; i < kDevices; ++i) {
      config.devices.push_back(
          {fmt::format("device {}", i), [this, i](const Peer& peer) { return device_for(peer, i); }});
    }
    service_ = std::make_unique<ServedPeers>(std::move(config), kMostMessage, &now_there);
  }

  Result<std::unique_ptr<command::Executor>> device_for(const Peer& peer, std::uint32_t number) {
    static const command::ExecutorFactory devices = plain_devices();
    Result<std::unique_ptr<command::Executor>> host = devices(peer);
    for (const auto& attempt : attempts()) {
      if (datapath::session_of(peer) != attempt->ends[1].get()) continue;
      if (attempt->log == nullptr) attempt->log = std::make_shared<DeviceLog>();
      auto& [lost, given] = attempt->devices[number];
      if (std::exchange(given, true)) wrong("a session has a device twice");
      return std::unique_ptr<command::Executor>(
          std::make_unique<LoggedDevice>(*std::move(host), attempt->log, lost, devices_));
    }
    // Its client is gone already.
    return std::unique_ptr<command::Executor>(std::make_unique<LoggedDevice>(
        *std::move(host), std::make_shared<DeviceLog>(), std::make_shared<const bool>(false), devices_));
  }
  std::vector<Attempt*> attempts() {
    std::vector<Attempt*> all;
    for (ClientState& client : clients_) {
      if (client.attempt != nullptr) all.push_back(client.attempt.get());
    }
    return all;
  }

  void connect(std::size_t i) {
    auto attempt = std::make_unique<Attempt>();
    begin_peers(i, *attempt);
    const auto dial = plan_.outlives ? [this, i] { return connect_again(i); } : datapath::command::Seeker::Dial();
    attempt->client = std::make_unique<CommandClient>(world_, plan_.programs[i], expected_[i], attempt->ends[0], begun_,
                                                      plan_.late, dial, &now_there);
    clients_[i].attempt = std::move(attempt);
    ++outcome_.sessions;
  }
  void begin_peers(std::size_t i, Attempt& attempt) {
    attempt.lane = ++connections_ % 2;
    SimStream::Pair streams = SimStream::pair(world_, address(i), "10.0.0.2");
    attempt.line = streams.line;
    attempt.ends[0] = hosts_[i]->start(std::move(streams.ends[0]), true);
    attempt.ends[1] = lanes_[attempt.lane]->start(std::move(streams.ends[1]), false);
    attempt.wounds = 0;
    at_server_.push_back(attempt.ends[1]);
  }
  /// A client that lost its peer wants another for its session.
  Result<Peer> connect_again(std::size_t i) {
    if (service_ == nullptr) return Status(Code::kNotFound, "connection refused");
    Attempt& attempt = *clients_[i].attempt;
    attempt.before.push_back(attempt.ends[0]);
    begin_peers(i, attempt);
    return datapath::make_peer(attempt.ends[0]);
  }
  static std::string address(std::size_t client) { return fmt::format("10.0.1.{}", client); }

  /// A control connection in place of one that broke, to either lane.
  Result<std::unique_ptr<datapath::ControlStream>> dial(std::size_t i, const datapath::Place& place) {
    const std::shared_ptr<SimHost>& lane = lanes_[++connections_ % 2];
    if (lane == nullptr) return Status(Code::kNotFound, "connection refused");
    SimStream::Pair streams = SimStream::pair(world_, address(i), place.address);
    if (clients_[i].attempt != nullptr) clients_[i].attempt->line = streams.line;
    lane->start(std::move(streams.ends[1]), false);
    return std::unique_ptr<datapath::ControlStream>(std::move(streams.ends[0]));
  }

  // ---- time

  void wrong(std::string what) {
    if (outcome_.wrong.empty()) outcome_.wrong = std::move(what);
  }
  [[nodiscard]] std::string unfinished() const {
    std::string text = fmt::format("{} sessions at the service, {} of its engine",
                                   service_ != nullptr ? service_->stats().sessions : 0, at_server_.size());
    for (const ClientState& client : clients_) {
      text += client.done                 ? "; done"
              : client.attempt == nullptr ? "; no session"
                                          : "; " + client.attempt->client->progress();
    }
    return text;
  }
  [[nodiscard]] bool fine() {
    if (++rounds_ > kRoundsAtMost) wrong("it does not come to its end in so many rounds");
    return outcome_.wrong.empty();
  }
  [[nodiscard]] bool all_done() {
    const bool done = std::ranges::all_of(clients_, &ClientState::done);
    fire_troubles(done);
    return done;
  }

  void round() {
    bool did = false;
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      if (hosts_[i] == nullptr || world_.now() < frozen_until_[1 + i] || world_.chance(0.3)) continue;
      did |= hosts_[i]->step();
      step_client(i);
    }
    if (service_ != nullptr && world_.now() >= frozen_until_[0] && !world_.chance(0.3)) {
      for (const auto& lane : lanes_) did |= lane->step();
      step_service();
    }
    idle_ = did ? 0 : idle_ + 1;
    const std::uint64_t most = idle_ < 50 ? 300 : 1500;
    world_.advance(microseconds(did ? 1 + world_.below(20) : 1 + world_.below(most)));
  }

  void step_service() {
    Event event;
    for (std::size_t i = 0; i < at_server_.size(); ++i) {
      while (world_.chance(0.9) && at_server_[i]->take_event(event)) {
        service_->handle(datapath::make_peer(at_server_[i]), std::move(event));
        event = Event();
      }
    }
    std::erase_if(at_server_, [](const auto& session) { return session->finished() && session->inbox.pending() == 0; });
    if (world_.chance(0.8)) service_->run_all();
    service_->drop_ended();
  }

  void step_client(std::size_t i) {
    ClientState& state = clients_[i];
    if (state.done) return;
    if (state.attempt == nullptr) {
      if (service_ != nullptr && world_.now() >= state.next_try) connect(i);
      return;
    }
    Attempt& attempt = *state.attempt;
    if (attempt.client->step()) return;
    if (!attempt.client->wrong().empty()) return wrong(fmt::format("client {}: {}", i, attempt.client->wrong()));
    if (attempt.client->is_done()) {
      if (attempt.log == nullptr || *attempt.log != expected_[i].log) {
        return wrong(fmt::format("client {}: its device did not get each command once and in order", i));
      }
      outcome_.lived_through += attempt.troubled ? 1 : 0;
      state.done = true;
    } else {
      judge_lost(i, attempt);
      state.next_try = world_.now() + microseconds(world_.below(50'000));
    }
    leave(state);
  }

  void judge_lost(std::size_t i, Attempt& attempt) {
    const Status& why = attempt.client->lost();
    const bool is_refused = why.code() == Code::kResourceExhausted && plan_.one_session && attempt.log == nullptr;
    ++(is_refused ? outcome_.refused : outcome_.lost);
    const bool lives = !attempt.doomed || (attempt.client->is_kept() && !attempt.hopeless);
    if (lives && !is_refused) {
      return wrong(fmt::format("client {}: the session was to live, and ended: {}", i, why.to_string()));
    }
    judge_log(i, attempt);
    for (const auto& [channel, sequence] : attempt.client->lost_at()) {
      const auto from = attempt.log->lost_from.find(channel);
      if (from == attempt.log->lost_from.end() || sequence <= from->second) continue;
      wrong(
          fmt::format("client {}: its device was lost at command {} of channel {}, and {} is said to have failed first",
                      i, from->second, channel, sequence));
    }
  }
  /// What its device got is a beginning of what it was to get, and at least what the client heard of.
  void judge_log(std::size_t i, const Attempt& attempt) {
    if (attempt.log == nullptr) return;
    const auto& all = expected_[i].log.channels;
    for (std::size_t channel = 0; channel < attempt.log->channels.size(); ++channel) {
      const auto& got = attempt.log->channels[channel];
      if (channel >= all.size() || got.size() > all[channel].size() ||
          !std::equal(got.begin(), got.end(), all[channel].begin())) {
        wrong(fmt::format("client {}: its device got what was not sent, not in that order, or twice", i));
      }
    }
  }
  /// Of what the client had, nothing is used any more.
  void leave(ClientState& state) {
    const PeerStats stats = datapath::make_peer(state.attempt->ends[0]).stats();
    outcome_.resumed += stats.resumptions;
    outcome_.failovers += stats.recoveries;
    outcome_.recovered += state.attempt->client->recovered();
    outcome_.across += state.attempt->client->across();
    outcome_.gone_on += state.attempt->client->resumptions();
    state.attempt.reset();
  }

  // ---- trouble

  void fire_troubles(bool all_done) {
    for (std::size_t i = 0; i < plan_.troubles.size(); ++i) {
      const CommandTrouble& t = plan_.troubles[i];
      if (fired_[i] || (begun_ < t.actions && !all_done)) continue;
      fired_[i] = true;
      ++pending_;
      world_.in(t.delay, [this, &t] { make_trouble(t, 300); });
    }
  }

  /// `tries`: there may be no path just now.
  void make_trouble(const CommandTrouble& t, int tries) {
    --pending_;
    ClientState& state = clients_[t.client];
    Attempt* const attempt = state.attempt.get();
    if (state.done) return;
    const auto counts = [&] {
      ++outcome_.troubles[static_cast<std::size_t>(t.kind)];
      if (attempt != nullptr) attempt->troubled = true;
    };
    switch (t.kind) {
      case Kind::kKillClient:
        if (hosts_[t.client] == nullptr) return;
        counts();
        return kill_client(t);
      case Kind::kKillServer:
        if (service_ == nullptr) return;
        counts();
        return kill_server(t);
      case Kind::kFreeze: {
        counts();
        Clock::time_point& until = frozen_until_[t.end == 0 ? 1 + t.client : 0];
        until = std::max(until, world_.now() + t.time);
        if (t.time < kPeerTimeout / 2) return;
        for (std::size_t i = 0; i < clients_.size(); ++i) {
          if (clients_[i].attempt != nullptr && (t.end == 1 || i == t.client)) clients_[i].attempt->doomed = true;
        }
        frozen_for_long_ = std::max(frozen_for_long_, until);
        return;
      }
      default:
        break;
    }
    if (attempt == nullptr || service_ == nullptr) return;
    switch (t.kind) {
      case Kind::kKillLane:
        counts();
        return kill_lane(attempt->lane, t);
      case Kind::kLose:
        counts();
        attempt->doomed = attempt->hopeless = true;
        *attempt->devices[t.end % plan_.programs[t.client].devices].lost = true;
        return;
      case Kind::kClose:
        counts();
        attempt->doomed = attempt->hopeless = true;
        return attempt->client->close();
      case Kind::kGarble:
        counts();
        attempt->doomed = true;
        return attempt->line.garble(world_, static_cast<int>(t.end));
      case Kind::kDrop:
        if (!attempt->client->is_kept()) {  // it has not begun
          if (tries == 0) return;
          ++pending_;
          return world_.in(microseconds(200), [this, &t, tries] { make_trouble(t, tries - 1); });
        }
        counts();
        for (const std::size_t end : {0u, 1u}) {
          attempt->doomed = true;
          world_.in(t.notice[end], [session = std::weak_ptr(attempt->ends[end])] {
            if (const auto there = session.lock()) there->abandon({Code::kPeerDied, "the connection was dropped"});
          });
        }
        return;
      case Kind::kHangUp:
        counts();
        for (const auto& end : attempt->ends) attempt->doomed |= end->id() == 0;  // the greeting is lost
        attempt->line.cut();
        for (const int end : {0, 1}) {
          const microseconds notice = t.notice[static_cast<std::size_t>(end)];
          if (notice.count() >= 0) world_.in(notice, [line = attempt->line, end] { line.reset(end); });
        }
        return;
      default:
        break;
    }
    if (attempt->wounds == plan_.transports.size() + 2) return;
    const auto found = paths(t.client);
    if (found.empty()) {
      if (tries == 0) return;
      ++pending_;
      return world_.in(microseconds(20), [this, &t, tries] { make_trouble(t, tries - 1); });
    }
    const auto& [path, peer] = found[found.size() == 1 ? 0 : world_.below(found.size())];
    // Until a path of its flow has been in use each transport is tried once.
    if (!was_used(*path) && attempt->wounds + 1 >= plan_.transports.size()) return;
    counts();
    ++attempt->wounds;
    FakePath* const ends[2] = {path, peer};
    for (std::size_t end : {0u, 1u}) {
      if (t.kind == Kind::kStall) {
        ends[end]->stall(t.time);
      } else {
        ends[end]->cut(t.notice[end].count() < 0 ? std::nullopt : std::optional(t.notice[end]));
      }
    }
  }

  /// Its paths that live, of the client's end and the server's.
  std::vector<std::pair<FakePath*, FakePath*>> paths(std::size_t client) {
    std::vector<std::pair<FakePath*, FakePath*>> found;
    if (hosts_[client] == nullptr || clients_[client].attempt == nullptr) return found;
    SimHost& host = *hosts_[client];
    for (std::size_t t = 0; t < host.transports().size(); ++t) {
      for (FakePath* path : host.fake(t).paths()) {
        if (&owner_of(*path) != clients_[client].attempt->ends[0].get()) continue;
        if (path->alive() && path->peer() != nullptr && path->peer()->alive()) found.push_back({path, path->peer()});
      }
    }
    return found;
  }

  /// The end that is left hears of it from its path and its connection, or not. `dies`: 0, the client's end.
  void cut_off(std::size_t client, std::size_t dies, const CommandTrouble& t) {
    Attempt* const attempt = clients_[client].attempt.get();
    if (attempt == nullptr) return;
    attempt->doomed = attempt->troubled = true;
    if (t.notice[0].count() < 0) attempt->line.cut();
    for (const auto& [path, peer] : paths(client)) {
      (dies == 0 ? peer : path)->cut(t.notice[1].count() < 0 ? std::nullopt : std::optional(t.notice[1]));
    }
  }

  void kill_client(const CommandTrouble& t) {
    ClientState& state = clients_[t.client];
    cut_off(t.client, 0, t);
    hosts_[t.client]->die();
    if (state.attempt != nullptr) {
      state.attempt->client->die();
      judge_log(t.client, *state.attempt);
      discard_events(state.attempt->ends[0]);
      for (const auto& end : state.attempt->before) discard_events(end);
      leave(state);
      ++outcome_.lost;
    }
    hosts_[t.client] = nullptr;
    ++pending_;
    world_.in(t.time, [this, i = t.client] {
      --pending_;
      boot_client(i);
    });
  }

  void kill_lane(std::size_t lane, const CommandTrouble& t) {
    for (std::size_t i = 0; i < clients_.size(); ++i) {
      if (clients_[i].attempt != nullptr && clients_[i].attempt->lane == lane) cut_off(i, 1, t);
    }
    lanes_[lane]->die(plan_.outlives ? Status(Code::kPeerDied, "the lane is gone") : Status());
  }

  void kill_server(const CommandTrouble& t) {
    for (std::size_t i = 0; i < clients_.size(); ++i) {
      cut_off(i, 1, t);
      if (clients_[i].attempt != nullptr) clients_[i].attempt->hopeless = true;
    }
    for (auto& lane : lanes_) lane->die();
    for (const auto& session : at_server_) discard_events(session);
    at_server_.clear();
    end_service();
    if (devices_.live != 0) wrong(fmt::format("{} devices are left of a service that ended", devices_.live));
    for (auto& lane : lanes_) lane = nullptr;
    ++pending_;
    world_.in(t.time, [this] {
      --pending_;
      boot_server();
    });
  }
  void end_service() {
    outcome_.commands += service_->stats().commands;
    outcome_.failures += service_->stats().failures;
    service_.reset();
  }
  /// Nobody will take them.
  static void discard_events(const std::shared_ptr<SessionImpl>& session) {
    Event event;
    while (session->take_event(event)) continue;
  }

  // ---- the end

  [[nodiscard]] bool freed() {
    return service_ != nullptr && at_server_.empty() && service_->stats().sessions == 0 &&
           std::ranges::all_of(hosts_, [](const auto& host) { return host != nullptr && host->idle(); }) &&
           std::ranges::all_of(lanes_, [](const auto& lane) { return lane->idle(); });
  }
  void check_end() {
    if (devices_.live != 0) wrong(fmt::format("{} sessions have a device still", devices_.live));
    for (const command::TenantStats& tenant : service_->tenants()) {
      if (tenant.sessions != 0 || tenant.memory_bytes != 0 || tenant.waiting != 0) {
        wrong(fmt::format("tenant '{}' has {} sessions, {} bytes and {} commands that wait, though all have ended",
                          tenant.name, tenant.sessions, tenant.memory_bytes, tenant.waiting));
      }
    }
    if (const std::uint64_t n = service_->stats().sessions_ended_wrong; n != 0) {
      wrong(fmt::format("{} clients were found to break the protocol", n));
    }
  }

  void let_go() {
    clients_.clear();
    if (service_ != nullptr) end_service();
    at_server_.clear();
    for (const auto& host : all_hosts_) host->release();
    hosts_.clear();
    for (auto& lane : lanes_) lane = nullptr;
    for (std::shared_ptr<SimHost>& host : all_hosts_) {
      for (std::size_t t = 0; t < host->transports().size(); ++t) {
        if (host->fake(t).registrations() != 0) wrong("registrations are left");
        if (!host->fake(t).paths().empty() || host->transports()[t].paths != 0) wrong("paths are left");
      }
      host->regions().shutdown();
      if (host.use_count() != 1) wrong("an engine is still held");
    }
    if (!wire_.paths.empty()) wrong("paths are left on the wire");
  }

  const CommandPlan& plan_;
  World world_;
  Wire wire_;
  EngineConfig config_;
  std::string keys_;
  CommandOutcome outcome_;
  std::vector<Expected> expected_;  // of each client
  std::size_t begun_ = 0;           // actions
  DeviceWorld devices_{&world_, plan_.late, 0};
  std::vector<ClientState> clients_;
  std::vector<std::shared_ptr<SimHost>> hosts_;    // of clients; null: dead
  std::array<std::shared_ptr<SimHost>, 2> lanes_;  // of the server; null: dead
  std::unique_ptr<ServedPeers> service_;           // null: dead
  std::vector<std::shared_ptr<SessionImpl>> at_server_;
  std::vector<std::shared_ptr<SimHost>> all_hosts_;
  std::array<Clock::time_point, 8> frozen_until_{};  // the server, then the clients
  Clock::time_point frozen_for_long_{};
  std::size_t connections_ = 0;
  std::vector<bool> fired_;
  std::size_t pending_ = 0;  // troubles and revivals that are to come
  int idle_ = 0, rounds_ = 0;
};

}  // namespace

CommandOutcome run_commands(const CommandPlan& plan) { return CommandRun(plan).run(); }

}  // namespace fairlead::simulation
