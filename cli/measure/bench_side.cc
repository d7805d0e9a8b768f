#include "cli/measure/bench_side.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "bench/base/host_load.h"
#include "bench/gain/terms.h"
#include "bench/net/end_facts.h"
#include "bench/net/load.h"
#include "cli/base/unreachable.h"
#include "cli/measure/interruption.h"
#include "cli/session.h"

namespace fairlead::cli {
namespace {

// A target may still be starting: each attempt that fails is followed by another while there is time.
Result<Peer> reach(Engine& engine, const std::string& target, const BenchOptions& options, Console& console) {
  constexpr std::chrono::milliseconds kPause{200};
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(options.wait);
  for (bool told = false;; told = true) {
    Result<Peer> peer = engine.connect(target);
    const Status ready = peer ? peer->wait_ready(options.config.connect_timeout) : peer.error();
    if (ready.ok()) return peer;
    if (std::chrono::steady_clock::now() >= end || interruption() != 0) {
      return unreachable(target, ready, "fairlead bench --server");
    }
    if (!told) console.line(fmt::format("waiting for {} for up to {:g} s: {}", target, options.wait, ready.message()));
    std::this_thread::sleep_for(kPause);
  }
}

// By what a session's figures are told apart; empty: by nothing.
std::string part_of(const BenchOptions& options, std::size_t initiator, bench::Op op, const std::string& target) {
  const bool several = options.targets.size() > 1;
  std::string part = options.initiators > 1 ? fmt::format("initiator {}", initiator) : "";
  if (!options.plan.bidirectional && !several) return part;
  return fmt::format("{}{}{} {}", part, part.empty() ? "" : " ", op == bench::Op::kRead ? "from" : "to",
                     several ? target : "target");
}

// The sessions of one initiator.
Status open_sessions(BenchSide& side, Engine& engine, std::size_t initiator, const BenchOptions& options,
                     Console& console) {
  std::vector<bench::Op> ops = {options.plan.op};
  if (options.plan.bidirectional) ops = {bench::Op::kWrite, bench::Op::kRead};
  for (const std::string& target : options.targets) {
    for (std::uint64_t number = 0; number < options.sessions; ++number) {
      for (const bench::Op op : ops) {
        Result<Peer> peer = reach(engine, target, options, console);
        if (!peer) return peer.error();
        side.links.push_back(std::make_unique<bench::Link>(&engine, *std::move(peer)));
        side.sessions.push_back({.link = side.links.back().get(),
                                 .op = op,
                                 .part = part_of(options, initiator, op, target),
                                 .target = target});
      }
    }
  }
  return {};
}

// A target of an older version refuses to say, and need not. What gives another answer is none.
Result<std::optional<bench::EndFacts>> facts_of(bench::Link& link) {
  const Result<bench::Json> answer = link.ask("facts");
  if (!answer) return std::optional<bench::EndFacts>();
  Result<bench::EndFacts> facts = bench::end_facts(*answer);
  if (!facts) return bench::no_target();
  return std::optional(*std::move(facts));
}

// The first session with each target.
std::vector<const bench::MeasuredSession*> one_of_each_target(const BenchSide& side) {
  std::vector<const bench::MeasuredSession*> firsts;
  for (const bench::MeasuredSession& session : side.sessions) {
    if (std::ranges::none_of(firsts, [&](const auto* first) { return first->target == session.target; }))
      firsts.push_back(&session);
  }
  return firsts;
}

void fill_in_link(BenchSide& side) {
  const Peer& peer = side.links.front()->peer();
  bench::Setting& setting = side.setting;
  const bench::SideFacts facts = bench::side_facts(peer, setting.device, side.engines.front()->config(),
                                                   *setting.initiator, setting.target.value_or(bench::EndFacts{}));
  setting.link = {.name = facts.link,
                  .mtu = facts.link_mtu,
                  .payload = facts.payload,
                  .megabits = facts.megabits,
                  .buffer = facts.buffer,
                  .target_buffer = facts.target_buffer};
}

}  // namespace

Result<std::vector<std::string>> look_around(std::vector<BenchSide>& sides, bench::Place memory) {
  const std::vector<const bench::MeasuredSession*> targets = one_of_each_target(sides.front());
  for (const auto* target : targets) {
    if (const auto facts = facts_of(*target->link); !facts) return facts.error();
  }
  std::vector<std::string> warnings = bench::busy_warnings();
  for (BenchSide& side : sides) side.setting.initiator = bench::own_facts(side.engines.front()->config(), memory);
  for (const auto* target : targets) {
    const Result<std::optional<bench::EndFacts>> answer = facts_of(*target->link);
    if (!answer) return answer.error();
    const std::optional<bench::EndFacts>& facts = *answer;
    if (!facts) continue;
    if (target == targets.front()) {
      for (BenchSide& side : sides) side.setting.target = facts;
    }
    if (facts->host.boot == sides.front().setting.initiator->host.boot) continue;  // which was looked at already
    for (const std::string& warning : facts->warnings)
      warnings.push_back(fmt::format("at {}: {}", target->target, warning));
  }
  for (BenchSide& side : sides) fill_in_link(side);
  return warnings;
}

Result<BenchSide> connect_side(const BenchOptions& options, const std::string& transport, Console& console) {
  EngineConfig config = options.config;
  config.transport = transport;
  BenchSide side;
  for (std::size_t initiator = 0; initiator < options.initiators; ++initiator) {
    Result<Engine> made = Engine::create(config);
    if (!made) return made.error();
    side.engines.push_back(std::make_unique<Engine>(*std::move(made)));
    Engine& engine = *side.engines.back();
    if (initiator == 0 && !options.metrics.empty()) {
      Result<Metrics> served = Metrics::serve(engine, {.listen = options.metrics, .service = "bench"});
      if (!served) return served.error();
      side.metrics.push_back(*std::move(served));
      console.line(fmt::format("metrics on http://{}/metrics", side.metrics.back().address()));
    }
    if (Status status = open_sessions(side, engine, initiator, options, console); !status.ok()) return status;
  }
  const Peer& first = side.links.front()->peer();
  side.setting.transport = first.transport();
  side.setting.device = device_of(*side.engines.front(), side.setting.transport);
  side.setting.path = first.explain();
  side.setting.local = options.local;
  side.setting.targets = options.targets;
  side.setting.sessions = options.sessions;
  side.setting.initiators = options.initiators;
  console.line(side.setting.path);
  if (side.links.size() > 1) console.line(fmt::format("beside it: {} more", side.links.size() - 1));
  for (const auto& link : side.links) {
    if (link->peer().transport() == side.setting.transport) continue;
    side.setting.warnings.push_back(
        fmt::format("sessions go over different transports, {} and {}: --transport says which", side.setting.transport,
                    link->peer().transport()));
    console.line("warning: " + side.setting.warnings.back());
    break;
  }
  return side;
}

}  // namespace fairlead::cli
