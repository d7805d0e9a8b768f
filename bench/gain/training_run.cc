#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "bench/base/cpu_time.h"
#include "bench/base/host_load.h"
#include "bench/gain/training.h"
#include "bench/gain/training_parameters.h"

namespace fairlead::bench {
namespace {

constexpr unsigned kRings = 4;  // of nothing, in a block
constexpr double kTick = 0.01;  // seconds, as /proc/stat counts

enum class Order : std::uint64_t { kEnd, kBaseline, kCandidate, kVerify };

/// Processor time that this host spent, on whatever.
double busy_seconds() {
  const auto ticks = cpu_ticks(SystemFiles());
  return ticks ? static_cast<double>(ticks->user + ticks->system + ticks->softirq + ticks->irq) * kTick : 0;
}

/// One transport at this rank.
struct Side {
  Group* group;
  Trainer trainer;
  std::uint64_t sums = 0;
  double busy = 0;  // seconds, of this host, in these
};

Result<TrainingBlock> run_block(Side& side, const TrainingGainPlan& plan) {
  TrainingBlock block;
  if (const Status all = side.group->barrier(); !all.ok()) return all;
  const Stopwatch rings;
  for (unsigned i = 0; i < kRings; ++i) {
    if (const Status done = side.trainer.sum_of_nothing(); !done.ok()) return done;
  }
  const auto steps = static_cast<double>(2 * (side.group->size() - 1));
  block.ring_step = rings.seconds() / kRings / steps;
  if (const Status all = side.group->barrier(); !all.ok()) return all;
  const double busy = busy_seconds();
  const Stopwatch sum;
  if (const Status done = side.trainer.sum(plan.sum_bytes); !done.ok()) return done;
  block.sum = sum.seconds();
  side.busy += busy_seconds() - busy;
  ++side.sums;
  if (const Status all = side.group->barrier(); !all.ok()) return all;
  std::vector<double> seconds;
  for (std::size_t i = 0; i < plan.training.steps; ++i) {
    const Stopwatch one;
    if (const Status done = side.trainer.step(); !done.ok()) return done;
    seconds.push_back(one.seconds());
  }
  block.step = median(std::move(seconds));
  return block;
}

/// Both transports at this rank, doing what rank 0 says.
class Ranks {
 public:
  Ranks(Side baseline, Side candidate, const TrainingGainPlan& plan, GradientMemory* memory)
      : baseline_(std::move(baseline)), candidate_(std::move(candidate)), plan_(plan), memory_(memory) {}

  Result<TrainingBlock> run(Order order) {
    if (const Result<std::uint64_t> told = baseline_.group->from_first(static_cast<std::uint64_t>(order)); !told)
      return told.error();
    return obey(order);
  }

  Status follow() {
    while (true) {
      const Result<std::uint64_t> order = baseline_.group->from_first(0);
      if (!order) return order.error();
      if (*order == static_cast<std::uint64_t>(Order::kEnd)) return {};
      if (*order > static_cast<std::uint64_t>(Order::kVerify)) {
        return {Code::kInvalidArgument,
                fmt::format("rank 0 orders {}, which no rank knows: all must be of one version", *order)};
      }
      if (const Result<TrainingBlock> done = obey(static_cast<Order>(*order)); !done) return done.error();
    }
  }

  Result<TrainingQuad> quad(bool candidate_outside, Order candidate) {
    TrainingQuad quad{.candidate_outside = candidate_outside, .baseline = {}, .candidate = {}};
    std::size_t of_baseline = 0, of_candidate = 0;
    for (const bool inner : {false, true, true, false}) {
      const bool is_candidate = inner != candidate_outside;
      const Result<TrainingBlock> block = run(is_candidate ? candidate : Order::kBaseline);
      if (!block) return block.error();
      (is_candidate ? quad.candidate[of_candidate++] : quad.baseline[of_baseline++]) = *block;
    }
    return quad;
  }

  [[nodiscard]] const Side& baseline() const noexcept { return baseline_; }
  [[nodiscard]] const Side& candidate() const noexcept { return candidate_; }

 private:
  Result<TrainingBlock> obey(Order order) {
    if (order != Order::kVerify) return run_block(order == Order::kCandidate ? candidate_ : baseline_, plan_);
    for (Side* side : {&baseline_, &candidate_}) {
      std::ranges::fill(memory_->summed, std::byte{0});
      if (const Status done = side->trainer.step(); !done.ok()) return done;
      if (const Status same = side->trainer.check(); !same.ok()) return same;
    }
    return TrainingBlock{};
  }

  Side baseline_, candidate_;
  const TrainingGainPlan& plan_;
  GradientMemory* memory_;
};

/// The same ranks with the candidate's transport. Where that is the baseline's too, its engine has both: an address of
/// softroce's has one device. All meet where they met rank 0 before, at another port.
struct CandidateGroup {
  std::unique_ptr<Engine> engine;  // empty: the baseline's
  std::unique_ptr<Group> group;
};
Result<CandidateGroup> candidate_group(Group& baseline, const std::string& transport) {
  CandidateGroup made;
  Engine* engine = &baseline.engine();
  Status opened;
  EngineConfig config = engine->config();
  if (config.transport != transport) {
    config.transport = transport;
    config.listen = engine->listen_address();
    config.listen.replace(config.listen.rfind(':'), std::string::npos, ":0");
    Result<Engine> own = Engine::create(std::move(config));
    if (own) {
      made.engine = std::make_unique<Engine>(*std::move(own));
      engine = made.engine.get();
    } else {
      opened = own.error();
    }
  }
  // Nobody waits for a rank that has no such engine.
  const Result<std::vector<std::string>> why_not = baseline.gather(opened.message());
  if (!why_not) return why_not.error();
  const auto without = std::ranges::find_if_not(*why_not, &std::string::empty);
  const bool all = without == why_not->end();
  const std::string& root = baseline.root();
  const Result<HostPort> listens = parse_host_port(engine->listen_address());
  const Result<std::uint64_t> port = baseline.from_first(all && listens ? listens->port : 0);
  if (!opened.ok()) return opened;
  if (!port) return port.error();
  if (*port == 0) {
    return Status(Code::kUnavailable, all ? fmt::format("another rank has no {}: rank 0 says which", transport)
                                          : fmt::format("rank {}: {}", without - why_not->begin(), *without));
  }
  Result<Group> group = Group::meet(engine, baseline.rank(), baseline.size(),
                                    fmt::format("{}:{}", root.substr(0, root.rfind(':')), *port));
  if (!group) return Status(group.error().code(), fmt::format("over {}: {}", transport, group.error().message()));
  made.group = std::make_unique<Group>(*std::move(group));
  return made;
}

SideFacts facts_of(Group& group, std::size_t other, const EndFacts& target) {
  const EngineConfig& config = group.engine().config();
  Peer& peer = group.peer(other);
  return side_facts(peer, peer.transport(), config, own_facts(config), target);
}

/// Of rank 0 and each other rank; those of the first whose terms are not equal, else of the last, its left neighbour.
struct Met {
  SideFacts baseline, candidate;
  std::vector<Term> terms;
};
Met met(Group& baseline, Group& candidate, const std::vector<EndFacts>& ends) {
  Met found;
  for (std::size_t other = 1; other < ends.size(); ++other) {
    found.baseline = facts_of(baseline, other, ends[other]);
    found.candidate = facts_of(candidate, other, ends[other]);
    found.terms = terms_of(found.baseline, found.candidate);
    if (!all_equal(found.terms)) break;
  }
  return found;
}

Result<std::vector<EndFacts>> gather_facts(Group& group) {
  const Result<std::vector<std::string>> texts = group.gather(Json(to_json(own_facts(group.engine().config()))).dump());
  if (!texts) return texts.error();
  std::vector<EndFacts> ends;
  for (const std::string& text : *texts) {
    const Result<Json> json = Json::parse(text);
    if (!json) return json.error();
    const Result<EndFacts> facts = end_facts(*json);
    if (!facts) return facts.error();
    ends.push_back(*facts);
  }
  return ends;
}

Status measure(Ranks& ranks, const TrainingGainPlan& plan, const std::function<void(const TrainingQuad&)>& done,
               TrainingRun& run) {
  for (const Order warm : {Order::kBaseline, Order::kCandidate}) {
    if (const Result<TrainingBlock> block = ranks.run(warm); !block) return block.error();
  }
  for (const bool outside : quad_orders(plan.quads, plan.seed)) {
    if (plan.stopped()) break;
    const Result<TrainingQuad> quad = ranks.quad(outside, Order::kCandidate);
    if (!quad) return quad.error();
    run.quads.push_back(*quad);
    done(*quad);
    if (!plan.control || plan.stopped()) continue;
    const Result<TrainingQuad> control = ranks.quad(outside, Order::kBaseline);
    if (!control) return control.error();
    run.control.push_back(*control);
  }
  if (!plan.stopped()) {
    if (const Result<TrainingBlock> verified = ranks.run(Order::kVerify); !verified) return verified.error();
    run.verified = true;
  }
  return {};
}

}  // namespace

Result<TrainingRun> compare_training(Group& group, const TrainingGainPlan& plan,
                                     const std::function<void(const TrainingQuad&)>& done) {
  if (group.size() < 2)
    return Status(Code::kInvalidArgument, "training over 1 rank exchanges nothing: take at least 2");
  if (group.engine().config().progress == Progress::kApplication) {
    return Status(Code::kInvalidArgument,
                  "a rank with two engines cannot drive one while it waits for the other: progress kApplication, which "
                  "must be kAuto or kThread");
  }
  Result<CandidateGroup> candidate = candidate_group(group, plan.candidate);
  if (!candidate) return candidate.error();
  GradientMemory memory;
  Result<Trainer> first = Trainer::prepare(&group, plan.training, "gradients", &memory);
  if (!first) return first.error();
  Result<Trainer> second =
      Trainer::prepare(candidate->group.get(), plan.training, "the candidate's gradients", &memory);
  if (!second) return second.error();
  Ranks ranks({&group, *std::move(first)}, {candidate->group.get(), *std::move(second)}, plan, &memory);
  const Result<std::vector<EndFacts>> ends = gather_facts(group);
  if (!ends) return ends.error();

  TrainingRun run;
  if (group.rank() != 0) {
    if (const Status followed = ranks.follow(); !followed.ok()) return followed;
  } else {
    if (const Status measured = measure(ranks, plan, done, run); !measured.ok()) return measured;
    if (const auto told = group.from_first(static_cast<std::uint64_t>(Order::kEnd)); !told) return told.error();
  }
  std::array<std::vector<std::uint64_t>, 2> busy;
  for (const auto& [side, of] : {std::pair(&ranks.baseline(), &busy[0]), std::pair(&ranks.candidate(), &busy[1])}) {
    Result<std::vector<std::uint64_t>> all = group.gather(static_cast<std::uint64_t>(side->busy * 1e9));
    if (!all) return all.error();
    *of = *std::move(all);
  }
  if (const Status all = group.barrier(); !all.ok()) return all;  // whoever leaves has answered everybody
  if (group.rank() != 0) return run;
  Met facts = met(group, *candidate->group, *ends);
  run.terms = std::move(facts.terms);
  run.ranks = group.size();
  run.baseline = side_of(run.quads, &TrainingQuad::baseline, {ranks.baseline().sums, std::move(busy[0])}, *ends, plan,
                         std::move(facts.baseline));
  run.candidate = side_of(run.quads, &TrainingQuad::candidate, {ranks.candidate().sums, std::move(busy[1])}, *ends,
                          plan, std::move(facts.candidate));
  return run;
}

}  // namespace fairlead::bench
