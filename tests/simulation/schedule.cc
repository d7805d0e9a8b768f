#include "schedule.h"

#include <fmt/format.h>

#include <algorithm>

#include "app.h"

namespace fairlead::simulation {
namespace {

constexpr int kRoundsAtMost = 2'000'000;

std::vector<Habits> make_transports(World& world, std::size_t count) {
  std::vector<Habits> made;
  for (std::size_t i = 0; i < count; ++i) {
    Habits habits;
    const bool tcp = i == 0 && world.chance(0.5);
    habits.name = tcp ? "tcp" : fmt::format("verbs:fake{}", i);
    habits.refusal_ends_path = !tcp;
    habits.latency = microseconds(2 + world.below(60));
    // The last one works, whatever the others do.
    if (i + 1 < count && world.chance(0.03)) habits.swallows = static_cast<Habits::Swallows>(1 + world.below(3));
    datapath::Capabilities& can = habits.can;
    can.one_sided = world.chance(0.8);
    habits.writes_arrive = world.chance(0.9);
    can.write_then_message_ordered = world.chance(0.7);
    can.write_notifies = can.write_then_message_ordered && habits.refusal_ends_path && world.chance(0.5);
    can.software = world.chance(0.5);
    can.max_message = static_cast<std::uint32_t>(64 + world.below(4000));
    can.max_segments = static_cast<std::uint32_t>(1 + world.below(8));
    can.max_outstanding = static_cast<std::uint32_t>(2 + world.below(40));
    made.push_back(habits);
  }
  return made;
}

class Schedule {
 public:
  explicit Schedule(const Options& options) : options_(options), world_(options.seed), wire_(world_) {
    const std::vector<Habits> transports = make_transports(world_, 1 + world_.below(options.max_transports));
    EngineConfig config;
    config.path_timeout = milliseconds(20);
    config.connect_timeout = milliseconds(30'000);  // several that swallow, four seconds each
    config.chunk_bytes = 1000 + world_.below(8000);
    config.max_pending_events = world_.chance(0.3) ? 1 + world_.below(4) : 2 + world_.below(60);
    config.max_message_bytes = 20'000;
    config.max_pending_bytes = world_.chance(0.5) ? 1 + world_.below(30'000) : std::size_t{1} << 20;
    flood_ = world_.chance(0.1);
    for (std::size_t i = 0; i < 2; ++i) {
      config.name = i == 0 ? "active" : "passive";
      hosts_[i] = std::make_shared<SimHost>(world_, wire_, config, transports);
      apps_[i] = std::make_unique<App>(world_, hosts_[i], config.name, flood_, outcome_);
    }
    auto [here, there] = SimStream::pair(world_);
    apps_[0]->begin(hosts_[0]->start(std::move(here), true, hosts_[0]), *apps_[1]);
    apps_[1]->begin(hosts_[1]->start(std::move(there), false, hosts_[1]), *apps_[0]);
    const auto sound =
        static_cast<std::size_t>(std::count_if(transports.begin(), transports.end(), [](const Habits& h) {
          return h.swallows == Habits::Swallows::kNothing;
        }));
    wounds_left_ = options.survivable ? sound - 1 : sound + 2;
  }

  Outcome run() {
    const auto posted = [&] {
      return apps_[0]->posted() + apps_[1]->posted() >= 2 * options_.transfers * (flood_ ? 8 : 1);
    };
    const auto closed = [&] { return apps_[0]->closed() && apps_[1]->closed(); };
    const auto quiet = [&] { return apps_[0]->quiet() && apps_[1]->quiet(); };
    trouble_ = true;
    const Clock::time_point busy_until = world_.now() + std::chrono::seconds(20);
    while (!posted() && !closed() && fine() && world_.now() < busy_until) round();
    trouble_ = false;
    for (const auto& app : apps_) app->stop_posting();
    const Clock::time_point end = world_.now() + std::chrono::seconds(60);
    while (!quiet() && fine() && world_.now() < end) round();
    if (!quiet() && fine())
      outcome_.wrong = fmt::format("transfers do not end: {}; {}", apps_[0]->unfinished(), apps_[1]->unfinished());
    // What was sent last is still to be taken.
    for (int i = 0; i < 500 && !closed() && fine(); ++i) round();
    const bool lost = apps_[0]->closed() || apps_[1]->closed();
    if (options_.survivable && lost && fine()) {
      outcome_.wrong =
          fmt::format("the session was lost, though a path was left: {}; {}", apps_[0]->end(), apps_[1]->end());
    }
    if (!lost) apps_[0]->close();
    while (!closed() && fine() && world_.now() < end) round();
    if (!closed() && fine()) outcome_.wrong = "the session does not end";
    for (int i = 0; i < 20; ++i) round();
    for (const auto& app : apps_) app->check_end(!lost);
    for (const auto& host : hosts_) host->release();
    for (const auto& app : apps_) app->release();
    for (const auto& host : hosts_) {
      for (std::size_t t = 0; t < host->transports().size() && fine(); ++t) {
        if (host->fake(t).registrations() != 0) outcome_.wrong = "registrations are left";
        if (!host->fake(t).paths().empty() || host->transports()[t].paths != 0) outcome_.wrong = "paths are left";
      }
      host->regions().shutdown();
    }
    outcome_.stale_on_wire = wire_.landed_after_close;
    for (std::size_t i : {0u, 1u}) outcome_.pairs[i] = hosts_[i]->pairs;
    return outcome_;
  }

 private:
  [[nodiscard]] bool fine() {
    if (++rounds_ > kRoundsAtMost && outcome_.wrong.empty()) outcome_.wrong = "it does not come to an end";
    return outcome_.wrong.empty();
  }

  void round() {
    bool did = false;
    for (std::size_t i = 0; i < 2; ++i) {
      if (world_.now() < frozen_until_[i] || world_.chance(0.3)) continue;
      did |= hosts_[i]->step();
      apps_[i]->step();
    }
    if (trouble_ && world_.chance(0.003)) make_trouble();
    world_.advance(microseconds(did ? 1 + world_.below(20) : 1 + world_.below(300)));
  }

  void make_trouble() {
    if (world_.chance(0.4)) {
      frozen_until_[world_.below(2)] = world_.now() + microseconds(world_.below(15'000));
      return;
    }
    if (wounds_left_ == 0) return;
    for (std::size_t t = 0; t < hosts_[0]->transports().size(); ++t) {
      for (FakePath* path : hosts_[0]->fake(t).paths()) {
        if (!path->alive() || path->peer() == nullptr || !path->peer()->alive()) continue;
        --wounds_left_;
        for (const auto& app : apps_) {
          for (std::uint64_t n = world_.below(4); n != 0; --n) app->take_back();
        }
        FakePath* const ends[2] = {path, path->peer()};
        if (world_.chance(0.3)) {
          const microseconds time(world_.below(120'000));
          for (FakePath* each : ends) each->stall(time);
        } else {
          const bool first_hears = world_.chance(0.8), second_hears = !first_hears || world_.chance(0.8);
          const bool hear[2] = {first_hears, second_hears};
          for (std::size_t i = 0; i < 2; ++i) {
            ends[i]->cut(hear[i] ? std::optional(microseconds(world_.below(3000))) : std::nullopt);
          }
        }
        return;
      }
    }
  }

  const Options options_;
  World world_;
  Wire wire_;
  Outcome outcome_;
  std::shared_ptr<SimHost> hosts_[2];
  std::unique_ptr<App> apps_[2];
  Clock::time_point frozen_until_[2]{};
  std::size_t wounds_left_ = 0;
  bool trouble_ = false, flood_ = false;
  int rounds_ = 0;
};

}  // namespace

Outcome run_schedule(const Options& options) { return Schedule(options).run(); }

}  // namespace fairlead::simulation
