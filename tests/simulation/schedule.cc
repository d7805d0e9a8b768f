#include "schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "app.h"
#include "sim_host.h"
#include "sim_stream.h"

namespace fairlead::simulation {
namespace {

using std::chrono::duration_cast;

constexpr int kRoundsAtMost = 3'000'000;
constexpr milliseconds kPeerTimeout{1000}, kPathTimeout{20};
constexpr std::chrono::seconds kGrace{100};  // to close in, beside what is tried in vain
constexpr const char* kAway = "10.9.0.1";    // the server's other place
constexpr milliseconds kSetupAtMost{4100};   // of a path that does not come to be used

/// A path was cut then, and none is in use at both ends yet.
struct Hurt {
  Clock::time_point at;
  bool told = false;         // an end is told of it, before it could find out
  bool alone = false;        // it left no path, and nothing else was wrong
  std::size_t troubles = 0;  // that had been made
};

/// A session with an application at each end. What comes back after a death is another.
struct Pair {
  std::size_t client = 0;
  std::unique_ptr<App> apps[2];
  SimStream::Line line;
  std::size_t wounds = 0;
  bool doomed = false;                // its control connection, or an end of it, is lost
  bool hasty = false;                 // it was closed while transfers were under way,
  std::optional<std::size_t> closer;  // by this end alone, with time enough for its own
  bool closing = false;
  std::optional<Hurt> hurt;

  [[nodiscard]] bool closed() const { return apps[0]->closed() && apps[1]->closed(); }
};

class Schedule {
 public:
  explicit Schedule(const Plan& plan) : plan_(plan), world_(plan.timing), wire_(world_) {
    config_.path_timeout = kPathTimeout;
    config_.connect_timeout = milliseconds(200'000);  // devices that swallow, four seconds for each pair of them
    config_.peer_timeout = kPeerTimeout;
    config_.chunk_bytes = plan.chunk_bytes;
    config_.paths = plan.paths;
    config_.choice = plan.measured ? PathChoice::kMeasured : PathChoice::kRanked;
    config_.max_pending_events = plan.window;
    config_.max_message_bytes = plan.slot_bytes;
    config_.max_pending_bytes = plan.window_bytes;
    sound_ =
        static_cast<std::size_t>(std::ranges::count(plan.transports, Habits::Swallows::kNothing, &Habits::swallows));
    for (const auto& client : plan.posts) {
      scripts_.push_back({Script{&client[0]}, Script{&client[1]}});
      posts_ += client[0].size() + client[1].size();
    }
    for (std::size_t client = 0; plan.principals && client < plan.posts.size(); ++client) {
      keys_ += fmt::format("{} {:064x}\n", principal_of(1 + client), 1 + client);
    }
    fired_.resize(plan.troubles.size());
    hosts_.resize(1 + plan.posts.size());
    frozen_until_.resize(hosts_.size());
    for (std::size_t engine = 0; engine < hosts_.size(); ++engine) boot(engine);
    for (std::size_t client = 0; client < plan.posts.size(); ++client) connect(client);
  }

  Outcome run() {
    const Clock::time_point busy_until = world_.now() + std::chrono::seconds(20);
    while (busy() && fine() && world_.now() < busy_until) round();
    trouble_ = false;
    for_apps([](App& app) { app.stop_posting(); });
    const Clock::time_point end =
        world_.now() + std::chrono::seconds(250) + setups_in_vain(datapath::Trials::kMostFailures);
    if (!plan_.hasty) {
      while (!quiet() && fine() && world_.now() < end) round();
      if (!quiet()) wrong(fmt::format("transfers do not end: {}", unfinished()));
      // What was sent last is still to be taken.
      for (int i = 0; i < 500 && fine(); ++i) round();
    }
    for (const auto& pair : pairs_) close(*pair);
    while (!closed() && fine() && world_.now() < end) round();
    if (!closed()) wrong(fmt::format("a session does not end: {}", unfinished()));
    for (int i = 0; i < 20; ++i) round();
    if (outcome_.wrong.empty()) check_end();
    let_go();
    return outcome_;
  }

 private:
  // ---- engines and sessions

  [[nodiscard]] static std::string address(std::size_t engine) { return fmt::format("10.0.0.{}", 1 + engine); }

  [[nodiscard]] static std::string principal_of(std::size_t engine) { return fmt::format("client{}", engine); }

  void boot(std::size_t engine) {
    config_.name = engine == 0 ? "server" : fmt::format("client {}", engine);
    config_.principal = engine == 0 || !plan_.principals ? "" : principal_of(engine);
    hosts_[engine] = std::make_shared<SimHost>(world_, wire_, config_, plan_.transports, keys_);
    all_hosts_.push_back(hosts_[engine]);
    if (engine != 0 || plan_.lanes == 1) return;
    second_ = std::make_shared<SimHost>(world_, wire_, config_, plan_.transports, keys_);
    second_->joins(*hosts_[0]);
    all_hosts_.push_back(second_);
    hosts_[0]->other_lane = second_;
    second_->other_lane = hosts_[0];
  }
  /// The lane of the server that takes the next connection.
  [[nodiscard]] const std::shared_ptr<SimHost>& next_lane() {
    return second_ != nullptr && ++connections_ % 2 == 0 ? second_ : hosts_[0];
  }

  void connect(std::size_t client) {
    auto pair = std::make_unique<Pair>();
    pair->client = client;
    const std::shared_ptr<SimHost> ends[2] = {hosts_[1 + client], next_lane()};
    ends[0]->dial_again = [this, client](const datapath::Place& place) { return dial(client, place); };
    if (plan_.places > 1) ends[0]->places = {{kAway, 7400, 0}, {address(0), 7400, 1}};
    SimStream::Pair streams = SimStream::pair(world_, address(1 + client), address(0));
    pair->line = streams.line;
    for (std::size_t end : {0u, 1u}) {
      const std::string name = fmt::format("{} {}", end == 0 ? "client" : "server", pairs_.size());
      pair->apps[end] = std::make_unique<App>(world_, ends[end], name, plan_, scripts_[client][end], outcome_);
    }
    for (std::size_t end : {0u, 1u}) {
      pair->apps[end]->begin(ends[end]->start(std::move(streams.ends[end]), end == 0), *pair->apps[1 - end]);
    }
    // Paths that do not come to be used, as often as they are tried.
    harms_ += (plan_.transports.size() - sound_) * plan_.transports.size() * datapath::Trials::kMostFailures *
              path_sets_of(plan_) * plan_.places;
    ++outcome_.sessions;
    pairs_.push_back(std::move(pair));
  }

  /// A control connection in place of one that broke, to whoever is there now.
  Result<std::unique_ptr<datapath::ControlStream>> dial(std::size_t client, const datapath::Place& place) {
    const bool there = plan_.places == 1 || (place.address == kAway) == (moves_ % 2 != 0);
    if (!there && moves_ % 3 == 0) return Status(Code::kUnavailable, "no route to host");
    if (!there || !hosts_[0]) return Status(Code::kNotFound, "connection refused");
    SimStream::Pair streams = SimStream::pair(world_, address(1 + client), place.address);
    if (Pair* pair = current(client)) pair->line = streams.line;
    next_lane()->start(std::move(streams.ends[1]), false);
    return std::unique_ptr<datapath::ControlStream>(std::move(streams.ends[0]));
  }

  /// The session of a client that was begun last; none while one of its ends is dead.
  Pair* current(std::size_t client) {
    for (auto at = pairs_.rbegin(); at != pairs_.rend(); ++at) {
      if ((*at)->client == client) return (*at)->doomed ? nullptr : at->get();
    }
    return nullptr;
  }

  void kill(std::size_t engine, const Trouble& t) {
    if (!hosts_[engine]) return;  // dead already
    ++outcome_.killed;
    const bool server = engine == 0;
    for (const auto& pair : pairs_) {
      if ((!server && pair->client + 1 != engine) || pair->closed()) continue;
      const std::size_t end = server ? 1 : 0;
      if (pair->apps[end]->dead()) continue;
      pair->doomed = true;
      // The end that is left hears of it from its path and its connection, or not.
      if (t.notice[0] == kNever) pair->line.cut();
      for (const auto& [path, peer] : paths(*pair)) {
        (end == 0 ? peer : path)->cut(t.notice[1] == kNever ? std::nullopt : std::optional(t.notice[1]));
      }
    }
    hosts_[engine]->die();
    hosts_[engine] = nullptr;
    if (server && second_ != nullptr) std::exchange(second_, nullptr)->die();
    for (const auto& pair : pairs_) {
      if (server || pair->client + 1 == engine) pair->apps[server ? 1 : 0]->die();
    }
    world_.in(t.time, [this, engine, server] {
      --pending_;
      boot(engine);
      for (std::size_t client = 0; client < scripts_.size(); ++client) {
        if ((server || client + 1 == engine) && hosts_[0] && hosts_[1 + client]) connect(client);
      }
    });
    ++pending_;
  }

  // ---- time

  void wrong(std::string what) {
    if (outcome_.wrong.empty()) outcome_.wrong = std::move(what);
  }
  [[nodiscard]] bool fine() {
    if (++rounds_ > kRoundsAtMost) wrong("it does not come to an end");
    return outcome_.wrong.empty();
  }
  template <typename Use>
  void for_apps(Use use) {
    for (const auto& pair : pairs_) {
      for (const auto& app : pair->apps) use(*app);
    }
  }
  [[nodiscard]] bool all_apps(bool (App::*is)() const noexcept) const {
    return std::ranges::all_of(pairs_,
                               [&](const auto& pair) { return ((*pair->apps[0]).*is)() && ((*pair->apps[1]).*is)(); });
  }
  [[nodiscard]] bool quiet() const { return all_apps(&App::quiet); }
  [[nodiscard]] bool closed() const { return all_apps(&App::closed); }
  [[nodiscard]] std::string unfinished() const {
    std::string text;
    for (const auto& pair : pairs_) {
      for (const auto& app : pair->apps) text += (text.empty() ? "" : "; ") + app->unfinished();
    }
    return text;
  }
  /// Something is to be posted, or trouble to come.
  [[nodiscard]] bool busy() {
    const bool posted = all_apps(&App::posted_all);
    fire_troubles(posted);
    return !posted || pending_ != 0;
  }

  void round() {
    bool did = false;
    for (std::size_t engine = 0; engine < hosts_.size(); ++engine) {
      if (!hosts_[engine] || world_.now() < frozen_until_[engine] || world_.chance(0.3)) continue;
      did |= hosts_[engine]->step();
      if (engine == 0 && second_ != nullptr) did |= second_->step();
      for (const auto& pair : pairs_) {
        App& app = *pair->apps[engine == 0 ? 1 : 0];
        if ((engine == 0 || pair->client + 1 == engine) && !app.dead()) app.step();
      }
    }
    for (const auto& pair : pairs_) look_after(*pair);
    // Where nothing moves, time goes by faster.
    idle_ = did ? 0 : idle_ + 1;
    const std::uint64_t most = idle_ < 50 ? 300 : 1500;
    world_.advance(microseconds(did ? 1 + world_.below(20) : 1 + world_.below(most)));
  }

  // ---- trouble

  void fire_troubles(bool posted_all) {
    if (!trouble_) return;
    std::size_t posted = 0;
    for (const auto& script : scripts_) posted += script[0].next + script[1].next;
    for (std::size_t i = 0; i < plan_.troubles.size(); ++i) {
      const Trouble& t = plan_.troubles[i];
      if (fired_[i] || (posted < std::min(t.posts, posts_) && !posted_all)) continue;
      fired_[i] = true;
      ++pending_;
      world_.in(t.delay, [this, &t] { make_trouble(t, 300); });
    }
  }

  /// `tries`: there may be no path just now.
  void make_trouble(const Trouble& t, int tries) {
    --pending_;
    ++troubles_;
    Pair* const pair = t.client < scripts_.size() ? current(t.client) : nullptr;
    if (!trouble_ || pair == nullptr) return;
    const std::size_t engine = t.end == 0 ? 1 + t.client : 0;
    switch (t.kind) {
      case Trouble::Kind::kFreeze:
        frozen_until_[engine] = std::max(frozen_until_[engine], world_.now() + t.time);
        frozen_for_ += t.time;
        harms_ += (engine == 0 ? scripts_.size() : 1) * path_sets_of(plan_);
        if (t.time < kPeerTimeout / 2) return;
        for (const auto& each : pairs_) each->doomed |= engine == 0 || each->client == t.client;
        return;
      case Trouble::Kind::kHangUp:
        for (const auto& app : pair->apps) pair->doomed |= app->session().id() == 0;  // the greeting is lost
        pair->line.cut();
        ++moves_;
        // An end that does not hear that its path is ready answers no READ over it. The memory of one that is late is
        // taken back by a fence.
        harms_ += path_sets_of(plan_);
        for (const int end : {0, 1}) {
          const microseconds notice = t.notice[static_cast<std::size_t>(end)];
          if (notice != kNever) world_.in(notice, [line = pair->line, end] { line.reset(end); });
        }
        ++outcome_.hung_up;
        told_after_ += t.notice[0] == kNever ? kPeerTimeout * 3 / 4 : t.notice[0];  // until the active end knows
        return;
      case Trouble::Kind::kGarble:
        pair->doomed = true;
        return pair->line.garble(world_, static_cast<int>(t.end));
      case Trouble::Kind::kKill:
        return kill(engine, t);
      case Trouble::Kind::kClose:
        pair->hasty = true;
        return pair->apps[t.end]->close(t.time);
      case Trouble::Kind::kCut:
      case Trouble::Kind::kStall:
        break;
    }
    if (pair->wounds == sound_ + 2) return;
    const auto found = paths(*pair);
    if (found.empty()) {
      if (tries == 0) return;
      ++pending_;
      return world_.in(microseconds(20), [this, &t, tries] { make_trouble(t, tries - 1); });
    }
    const auto& [path, peer] = found[found.size() == 1 ? 0 : world_.below(found.size())];
    // Until a path of its flow has been in use each transport is tried once.
    const bool used = was_used(*path);
    if (plan_.survivable && !used && pair->wounds + 1 >= sound_) return;
    ++pair->wounds;
    ++harms_;
    FakePath* const ends[2] = {path, peer};
    for (std::size_t end : {0u, 1u}) {
      pair->apps[end]->take_back(t.take_back[end]);
      if (t.kind == Trouble::Kind::kStall) {
        ends[end]->stall(t.time);
      } else {
        ends[end]->cut(t.notice[end] == kNever ? std::nullopt : std::optional(t.notice[end]));
      }
    }
    if (t.for_good) ends[0]->transport().unplug();
    if (t.kind == Trouble::Kind::kStall) {
      stalled_for_ += t.time;
    } else {
      told_after_ += std::max(microseconds(0), std::min(t.notice[0], t.notice[1]));  // kNever is less than nothing
      if (!pair->hurt) pair->hurt = hurt_by(t, *pair);
    }
  }

  /// A cut of one of its paths, just now.
  Hurt hurt_by(const Trouble& cut, Pair& pair) {
    const auto told = [](microseconds notice) { return notice != kNever && notice < kPathTimeout; };
    const auto stands_still = [&](std::size_t engine) { return frozen_until_[engine] > world_.now(); };
    const auto ready = [](const auto& app) { return app->session().state() == PeerState::kReady; };
    const bool alone = paths(pair).empty() && !pair.line.is_cut() && std::ranges::all_of(pair.apps, ready) &&
                       !stands_still(0) && !stands_still(1 + pair.client) && setups_in_vain(1).count() == 0;
    return {.at = world_.now(), .told = std::ranges::any_of(cut.notice, told), .alone = alone, .troubles = troubles_};
  }

  /// Its paths that live, of the client's end and the server's.
  std::vector<std::pair<FakePath*, FakePath*>> paths(Pair& pair) {
    std::vector<std::pair<FakePath*, FakePath*>> found;
    SimHost& host = pair.apps[0]->host();
    for (std::size_t t = 0; t < host.transports().size(); ++t) {
      for (FakePath* path : host.fake(t).paths()) {
        if (&owner_of(*path) != &pair.apps[0]->session()) continue;
        if (path->alive() && path->peer() != nullptr && path->peer()->alive()) found.push_back({path, path->peer()});
      }
    }
    return found;
  }

  void look_after(Pair& pair) {
    if (sound_ != plan_.transports.size()) check_proved(pair);
    if (!pair.hurt) return;
    const auto is = [&](PeerState state) {
      return pair.apps[0]->session().state() == state && pair.apps[1]->session().state() == state;
    };
    if (is(PeerState::kClosed) || pair.doomed || pair.hasty || pair.closing) {
      pair.hurt.reset();
    } else if (is(PeerState::kReady) && !paths(pair).empty()) {
      const auto took = duration_cast<microseconds>(world_.now() - pair.hurt->at);
      outcome_.slowest_recovery = std::max(outcome_.slowest_recovery, static_cast<std::uint64_t>(took.count()));
      if (pair.hurt->alone && pair.hurt->troubles == troubles_) {
        auto& all = pair.hurt->told ? outcome_.told_recoveries : outcome_.silent_recoveries;
        all.push_back(static_cast<std::uint64_t>(took.count()));
      }
      if (took > recovery_at_most(pair)) wrong(fmt::format("a cut took {} us to be got over", took.count()));
      pair.hurt.reset();
    }
  }

  /// Only what has been seen to arrive is used.
  void check_proved(Pair& pair) {
    for (const auto& [path, peer] : paths(pair)) {
      if (!path->deaf() && !peer->deaf()) continue;
      for (std::size_t end : {0u, 1u}) {
        if (!(end == 0 ? path : peer)->used()) continue;
        wrong(fmt::format("end {} uses a path of which an end hears nothing", end));
      }
    }
  }

  /// How long it may take until both ends use another path: what stands still, freezes, swallows or is told late is
  /// waited for.
  [[nodiscard]] microseconds recovery_at_most(const Pair& pair) const {
    using datapath::Trials;
    const bool tries_again = pair.wounds >= sound_ || !plan_.survivable;
    const milliseconds pauses = tries_again ? Trials::kFirstPause * (1 << Trials::kMostFailures) : milliseconds(0);
    return milliseconds(60) + pauses + told_after_ + stalled_for_ + frozen_for_ +
           setups_in_vain(tries_again ? Trials::kMostFailures : 1);
  }

  /// How long it takes until each candidate that never works has been tried so often.
  [[nodiscard]] microseconds setups_in_vain(std::size_t tries) const {
    const auto slow = static_cast<std::size_t>(std::ranges::count_if(plan_.transports, [](const Habits& habits) {
      return habits.swallows != Habits::Swallows::kNothing || !habits.writes_arrive;
    }));
    // Pairs with a slow one at either end.
    const std::size_t pairs = slow * (2 * plan_.transports.size() - slow);
    return pairs * plan_.places * tries * kSetupAtMost;
  }

  // ---- the end

  void close(Pair& pair) {
    if (std::exchange(pair.closing, true)) return;
    const bool lost = pair.apps[0]->closed() || pair.apps[1]->closed();
    if (pair.line.is_cut()) {  // who closes may be gone before the other can ask why
      for (const auto& app : pair.apps) app->excuse_end();
    }
    if (plan_.survivable && !pair.doomed && !pair.hasty && lost) lost_though(pair);
    pair.doomed |= lost;
    outcome_.lost += pair.doomed ? 1 : 0;
    const std::uint64_t who = world_.below(3);
    if (who < 2 && !pair.hasty && !pair.doomed) pair.closer = who;
    pair.hasty |= !pair.apps[0]->quiet() || !pair.apps[1]->quiet();
    for (std::size_t end : {0u, 1u}) {
      App& app = *pair.apps[end];
      if (!app.closed() && (who == end || who == 2 || pair.doomed))
        app.close(kGrace + setups_in_vain(datapath::Trials::kMostFailures));
    }
  }

  void lost_though(const Pair& pair) {
    wrong(
        fmt::format("the session was lost, though a path was left: {}; {}", pair.apps[0]->end(), pair.apps[1]->end()));
  }

  void check_end() {
    check_fences();
    for (const auto& pair : pairs_) {
      // The last path may have been cut while it was being closed.
      const bool fell = !plan_.survivable && (pair->apps[0]->lost() || pair->apps[1]->lost());
      const bool lives = !pair->doomed && !pair->hasty && !fell;
      for (std::size_t end : {0u, 1u}) pair->apps[end]->check_end(lives, lives || (pair->closer == end && !fell));
    }
  }

  /// Paths are not fenced for nothing: what a fence leaves undone is done again.
  void check_fences() {
    std::uint64_t fences = 0, left_for_better = 0;
    for (const auto& host : all_hosts_) {
      for (const auto& events : host->pairs.paths) {
        fences += events[static_cast<std::size_t>(datapath::PathEvent::kFence)];
        left_for_better += events[static_cast<std::size_t>(datapath::PathEvent::kBetter)];
      }
    }
    if (fences > harms_ + wire_.refused + left_for_better) {
      wrong(fmt::format("{} paths were fenced, though {} were harmed, {} refused something and {} were left for better",
                        fences, harms_, wire_.refused, left_for_better));
    }
  }

  /// What is left then is left over.
  void let_go() {
    for (const auto& host : all_hosts_) host->release();  // one that came back to nobody, too
    for_apps([](App& app) { app.release(); });
    hosts_.clear();
    second_.reset();
    for (std::shared_ptr<SimHost>& host : all_hosts_) {
      for (std::size_t t = 0; t < host->transports().size(); ++t) {
        if (host->fake(t).registrations() != 0) wrong("registrations are left");
        if (!host->fake(t).paths().empty() || host->transports()[t].paths != 0) wrong("paths are left");
      }
      outcome_.moved += host->moved_here;
      host->regions().shutdown();
      if (host.use_count() != 1) wrong("an engine is still held");
    }
    if (!wire_.paths.empty()) wrong("paths are left on the wire");
    if (wire_.foreign != 0) wrong(fmt::format("{} operations named what is another domain's", wire_.foreign));
    if (wire_.unregistered != 0) {
      wrong(fmt::format("{} requests named memory that their path's domain does not know", wire_.unregistered));
    }
    for (std::size_t i = 0; i < all_hosts_.size(); ++i) {
      outcome_.pairs[all_hosts_[i]->config().name == "server" ? 1 : 0] += all_hosts_[i]->pairs;
    }
    outcome_.stale_on_wire = wire_.landed_after_close;
    outcome_.sent_again = wire_.sent_again;
  }

  const Plan& plan_;
  World world_;
  Wire wire_;
  EngineConfig config_;
  std::string keys_;  // of the principals, if there are any
  Outcome outcome_;
  std::size_t sound_ = 0, posts_ = 0;
  std::vector<std::array<Script, 2>> scripts_;   // of each client
  std::vector<std::shared_ptr<SimHost>> hosts_;  // the server, then the clients; null: dead
  std::shared_ptr<SimHost> second_;              // the server's second lane; null: it has none, or is dead
  std::size_t connections_ = 0;                  // that the lanes took by turns
  std::size_t moves_ = 0;                        // of the server, from one place to the other
  std::vector<std::shared_ptr<SimHost>> all_hosts_;
  std::vector<Clock::time_point> frozen_until_;
  std::vector<std::unique_ptr<Pair>> pairs_;
  std::vector<bool> fired_;   // of the plan's troubles
  std::size_t troubles_ = 0;  // that were made
  std::size_t pending_ = 0;   // troubles and revivals that are to come
  std::uint64_t harms_ = 0;   // for each a path may have to be fenced
  microseconds stalled_for_{0}, frozen_for_{0}, told_after_{0};
  bool trouble_ = true;
  int idle_ = 0, rounds_ = 0;
};

}  // namespace

Outcome run_plan(const Plan& plan) { return Schedule(plan).run(); }

}  // namespace fairlead::simulation
