#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "bench/base/cpu_time.h"
#include "bench/base/host_load.h"
#include "bench/gain/training.h"
#include "bench/gain/training_parameters.h"

namespace fairlead::bench {
namespace {

constexpr unsigned kRings = 4;  // of nothing, in a block
constexpr double kTick = 0.01;  // seconds, as /proc/stat counts

enum class Order : std::uint64_t { kEnd, kBaseline, kOther, kVerify, kOpen };  // kOpen and three more: opening()

// Which sessions are opened next: those of a quad, or of the control's, the baseline's twice; and whose come first.
Order opening(bool control, bool other_first) {
  return static_cast<Order>(static_cast<std::uint64_t>(Order::kOpen) + (control ? 2 : 0) + (other_first ? 1 : 0));
}
constexpr std::uint64_t kLastOrder = static_cast<std::uint64_t>(Order::kOpen) + 3;

/// Processor time that this host spent, on whatever.
double busy_seconds() {
  const auto ticks = cpu_ticks(SystemFiles());
  return ticks ? static_cast<double>(ticks->user + ticks->system + ticks->softirq + ticks->irq) * kTick : 0;
}

/// One transport at this rank, for as long as its sessions last. Not moved: the trainer points to the group.
class Side {
 public:
  static Result<std::unique_ptr<Side>> open(Engine& engine, const Group& ranks, const std::string& root,
                                            const TrainingPlan& plan, GradientMemory* memory, const std::string& name) {
    Result<Group> group = Group::meet(&engine, ranks.rank(), ranks.size(), root);
    if (!group)
      return Status(group.error().code(),
                    fmt::format("over {}: {}", engine.config().transport, group.error().message()));
    std::unique_ptr<Side> side(new Side(*std::move(group)));
    Result<Trainer> trainer = Trainer::prepare(&side->group, plan, name, memory);
    if (!trainer) return trainer.error();
    side->trainer.emplace(*std::move(trainer));
    return side;
  }

  Group group;
  std::optional<Trainer> trainer;

 private:
  explicit Side(Group met) : group(std::move(met)) {}
};

/// What sums beforehand took of this host over one transport.
struct Spent {
  std::uint64_t sums = 0;
  double busy = 0;  // seconds
};

Result<TrainingBlock> run_block(Side& side, Spent& spent, const TrainingGainPlan& plan) {
  TrainingBlock block;
  if (const Status all = side.group.barrier(); !all.ok()) return all;
  const Stopwatch rings;
  for (unsigned i = 0; i < kRings; ++i) {
    if (const Status done = side.trainer->sum_of_nothing(); !done.ok()) return done;
  }
  const auto steps = static_cast<double>(2 * (side.group.size() - 1));
  block.ring_step = rings.seconds() / kRings / steps;
  if (const Status all = side.group.barrier(); !all.ok()) return all;
  const double busy = busy_seconds();
  const Stopwatch sum;
  if (const Status done = side.trainer->sum(plan.sum_bytes); !done.ok()) return done;
  block.sum = sum.seconds();
  spent.busy += busy_seconds() - busy;
  ++spent.sums;
  if (const Status all = side.group.barrier(); !all.ok()) return all;
  std::vector<double> seconds;
  for (std::size_t i = 0; i < plan.training.steps; ++i) {
    const Stopwatch one;
    if (const Status done = side.trainer->step(); !done.ok()) return done;
    seconds.push_back(one.seconds());
  }
  block.step = median(std::move(seconds));
  return block;
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

/// Where the candidate's transport is to be had, and where its ranks meet.
struct Candidate {
  Engine* engine;
  std::unique_ptr<Engine> own;  // empty: the baseline's has it
  std::string root;
};

/// Both transports at this rank, doing what rank 0 says over the sessions of `ranks`, which stay. Those that are
/// measured are opened anew for each quad: what is peculiar to a session, such as the core that its interrupts reach,
/// is to be counted as chance, and not as the transport's.
class Ranks {
 public:
  Ranks(Group& ranks, const Candidate& candidate, const TrainingGainPlan& plan, const std::vector<EndFacts>& ends)
      : ranks_(ranks), candidate_(candidate), plan_(plan), ends_(ends) {}

  Result<TrainingBlock> run(Order order) {
    if (const Result<std::uint64_t> told = ranks_.from_first(static_cast<std::uint64_t>(order)); !told)
      return told.error();
    return obey(order);
  }

  Status follow() {
    while (true) {
      const Result<std::uint64_t> order = ranks_.from_first(0);
      if (!order) return order.error();
      if (*order > kLastOrder) {
        return {Code::kInvalidArgument,
                fmt::format("rank 0 orders {}, which no rank knows: all must be of one version", *order)};
      }
      if (const Result<TrainingBlock> done = obey(static_cast<Order>(*order)); !done) return done.error();
      if (*order == static_cast<std::uint64_t>(Order::kEnd)) return {};
    }
  }

  /// Between sessions of its own. `control`: the baseline beside itself.
  Result<TrainingQuad> quad(bool control, bool other_outside, bool other_first) {
    if (const Result<TrainingBlock> opened = run(opening(control, other_first)); !opened) return opened.error();
    TrainingQuad quad{.candidate_outside = other_outside, .baseline = {}, .candidate = {}};
    std::size_t of_baseline = 0, of_other = 0;
    for (const bool inner : {false, true, true, false}) {
      const bool is_other = inner != other_outside;
      const Result<TrainingBlock> block = run(is_other ? Order::kOther : Order::kBaseline);
      if (!block) return block.error();
      (is_other ? quad.candidate[of_other++] : quad.baseline[of_baseline++]) = *block;
    }
    return quad;
  }

  [[nodiscard]] const Spent& baseline() const noexcept { return spent_[0]; }
  [[nodiscard]] const Spent& candidate() const noexcept { return spent_[1]; }
  /// Of the first quad's sessions.
  [[nodiscard]] Met take_facts() { return std::move(met_); }

 private:
  Result<TrainingBlock> obey(Order order) {
    if (order == Order::kEnd) return nothing(close());
    if (order >= Order::kOpen) {
      const auto which = static_cast<std::uint64_t>(order) - static_cast<std::uint64_t>(Order::kOpen);
      return nothing(open((which & 2) != 0, (which & 1) != 0));
    }
    if (sides_[0] == nullptr)
      return Status(Code::kInvalidArgument, "rank 0 measures before it has opened any sessions");
    if (order == Order::kVerify) return nothing(verify());
    const bool is_other = order == Order::kOther;
    return run_block(*sides_[is_other ? 1 : 0], spent_[is_other && !control_ ? 1 : 0], plan_);
  }
  static Result<TrainingBlock> nothing(const Status& done) {
    return done.ok() ? Result<TrainingBlock>(TrainingBlock{}) : done;
  }

  Status open(bool control, bool other_first) {
    if (Status closed = close(); !closed.ok()) return closed;
    control_ = control;
    for (const bool is_other : {other_first, !other_first}) {
      const bool is_candidate = is_other && !control;
      Result<std::unique_ptr<Side>> side = Side::open(is_candidate ? *candidate_.engine : ranks_.engine(), ranks_,
                                                      is_candidate ? candidate_.root : ranks_.root(), plan_.training,
                                                      &memory_, fmt::format("gradients {}", ++opened_));
      if (!side) return side.error();
      sides_[is_other ? 1 : 0] = *std::move(side);
    }
    if (!control && met_.terms.empty()) met_ = met(sides_[0]->group, sides_[1]->group, ends_);
    for (const auto& side : sides_) {  // their buffers and windows are new
      if (Status warm = side->trainer->sum(plan_.sum_bytes); !warm.ok()) return warm;
    }
    return {};
  }

  Status close() {
    Status closed;
    for (auto& side : sides_) {
      if (side == nullptr) continue;
      if (Status left = side->group.leave(); !left.ok()) closed = left;
      side.reset();
    }
    return closed;
  }

  Status verify() {
    for (const auto& side : sides_) {
      std::ranges::fill(memory_.summed, std::byte{0});
      if (Status done = side->trainer->step(); !done.ok()) return done;
      if (Status same = side->trainer->check(); !same.ok()) return same;
    }
    return {};
  }

  Group& ranks_;
  const Candidate& candidate_;
  const TrainingGainPlan& plan_;
  const std::vector<EndFacts>& ends_;
  GradientMemory memory_;
  std::array<std::unique_ptr<Side>, 2>
      sides_;  // the baseline, and the candidate or, in the control, the baseline again
  bool control_ = false;
  std::uint64_t opened_ = 0;
  std::array<Spent, 2> spent_{};  // of the baseline, wherever it was, and the candidate
  Met met_;
};

/// Where that is the baseline's too, its engine has both: an address of softroce's has one device. The ranks meet where
/// they met rank 0 before, at another port.
Result<Candidate> candidate_of(Group& baseline, const std::string& transport) {
  Candidate made{.engine = &baseline.engine(), .own = nullptr, .root = {}};
  Status opened;
  EngineConfig config = made.engine->config();
  if (config.transport != transport) {
    config.transport = transport;
    config.listen = made.engine->listen_address();
    config.listen.replace(config.listen.rfind(':'), std::string::npos, ":0");
    Result<Engine> own = Engine::create(std::move(config));
    if (own) {
      made.own = std::make_unique<Engine>(*std::move(own));
      made.engine = made.own.get();
    } else {
      opened = own.error();
    }
  }
  // Nobody waits for a rank that has no such engine.
  const Result<std::vector<std::string>> why_not = baseline.gather(opened.message());
  if (!why_not) return why_not.error();
  const auto without = std::ranges::find_if_not(*why_not, &std::string::empty);
  const bool all = without == why_not->end();
  const Result<HostPort> listens = parse_host_port(made.engine->listen_address());
  const Result<std::uint64_t> port = baseline.from_first(all && listens ? listens->port : 0);
  if (!opened.ok()) return opened;
  if (!port) return port.error();
  if (*port == 0) {
    return Status(Code::kUnavailable, all ? fmt::format("another rank has no {}: rank 0 says which", transport)
                                          : fmt::format("rank {}: {}", without - why_not->begin(), *without));
  }
  const std::string& root = baseline.root();
  made.root = fmt::format("{}:{}", root.substr(0, root.rfind(':')), *port);
  return made;
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
  const std::vector<bool> outside = quad_orders(plan.quads, plan.seed),
                          first = quad_orders(plan.quads, plan.seed ^ kOpeningOrder),
                          control_first = quad_orders(plan.quads, plan.seed ^ kControlOpeningOrder);
  for (std::uint64_t i = 0; i < plan.quads && !plan.stopped(); ++i) {
    const Result<TrainingQuad> quad = ranks.quad(false, outside[i], first[i]);
    if (!quad) return quad.error();
    run.quads.push_back(*quad);
    done(*quad);
    // Between the sessions that the last quad has, before the control has others.
    if (i + 1 == plan.quads && !plan.stopped()) {
      if (const Result<TrainingBlock> verified = ranks.run(Order::kVerify); !verified) return verified.error();
      run.verified = true;
    }
    if (!plan.control || plan.stopped()) continue;
    const Result<TrainingQuad> control = ranks.quad(true, outside[i], control_first[i]);
    if (!control) return control.error();
    run.control.push_back(*control);
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
  const Result<Candidate> candidate = candidate_of(group, plan.candidate);
  if (!candidate) return candidate.error();
  const Result<std::vector<EndFacts>> ends = gather_facts(group);
  if (!ends) return ends.error();
  Ranks ranks(group, *candidate, plan, *ends);

  TrainingRun run;
  if (group.rank() != 0) {
    if (const Status followed = ranks.follow(); !followed.ok()) return followed;
  } else {
    if (const Status measured = measure(ranks, plan, done, run); !measured.ok()) return measured;
    if (const auto ended = ranks.run(Order::kEnd); !ended) return ended.error();
  }
  std::array<std::vector<std::uint64_t>, 2> busy;
  for (const auto& [spent, of] : {std::pair(&ranks.baseline(), &busy[0]), std::pair(&ranks.candidate(), &busy[1])}) {
    Result<std::vector<std::uint64_t>> all = group.gather(static_cast<std::uint64_t>(spent->busy * 1e9));
    if (!all) return all.error();
    *of = *std::move(all);
  }
  if (const Status all = group.barrier(); !all.ok()) return all;  // whoever leaves has answered everybody
  if (group.rank() != 0) return run;
  Met facts = ranks.take_facts();
  run.terms = std::move(facts.terms);
  run.ranks = group.size();
  run.baseline = side_of(run.quads, &TrainingQuad::baseline, {ranks.baseline().sums, std::move(busy[0])}, *ends, plan,
                         std::move(facts.baseline));
  run.candidate = side_of(run.quads, &TrainingQuad::candidate, {ranks.candidate().sums, std::move(busy[1])}, *ends,
                          plan, std::move(facts.candidate));
  return run;
}

}  // namespace fairlead::bench
