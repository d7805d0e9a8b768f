#include "bench/gain/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "bench/base/sizes.h"
#include "bench/net/load.h"

namespace fairlead::bench {
namespace {

// Before the clock of a block starts, so that its predecessor's silence is over: congestion windows that a pause
// shrank, threads that sleep.
constexpr double kWarmUp = 0.1;               // of a block
constexpr double kLongestFirstWarmUp = 0.25;  // seconds, of a session; a block's time, if that is less
constexpr double kOpening = 0.03;             // seconds that a pair of sessions takes to begin and to be checked, about
constexpr unsigned kSlices = 10;              // of a block whose candidate rests between them

double first_warm_up(const GainPlan& plan) { return std::min(plan.block, kLongestFirstWarmUp); }

Block block_of(const Sample& sample, bool one_host) {
  return {.seconds = sample.seconds,
          .operations = sample.iterations,
          .size = sample.size,
          .initiator_cpu = sample.initiator_cpu.total(),
          .target_cpu = sample.target_cpu.total(),
          .initiator_softirq = sample.initiator_cpu.softirq,
          .target_softirq = sample.target_cpu.softirq,
          .one_host = one_host,
          .latency_p50 = sample.latency.percentile(50),
          .latency_p99 = sample.latency.percentile(99)};
}

Result<Block> measure_block(Load& load, const GainPlan& plan, bool rests) {
  if (Status status = load.warm_up(plan.block * kWarmUp, ~std::uint64_t{0}); !status.ok()) return status;
  if (plan.slow_candidate == 0) {
    const Result<Sample> sample = load.timed(plan.block, 0);
    if (!sample) return sample.error();
    return block_of(*sample, plan.one_host);
  }
  Sample sum;
  for (unsigned slice = 0; slice < kSlices; ++slice) {
    Result<Sample> sample = load.timed(plan.block / kSlices, 0);
    if (!sample) return sample.error();
    if (rests) {
      const auto begin = std::chrono::steady_clock::now();
      std::this_thread::sleep_for(std::chrono::duration<double>(sample->seconds * plan.slow_candidate));
      sample->seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
    sum.merge(*sample);
  }
  return block_of(sum, plan.one_host);
}

// A session of each side, each with its load: what quads are measured between.
class Pair {
 public:
  static Result<Pair> open(const Connect& connect, const Plan& plan, std::uint64_t size, double warm_up, Side other,
                           bool other_first) {
    Pair pair;
    for (const bool is_other : {other_first, !other_first}) {
      Result<std::unique_ptr<Link>> link = connect(is_other ? other : Side::kBaseline);
      if (!link) return link.error();
      End& end = pair.ends_[is_other ? 1 : 0];
      end.link = *std::move(link);
      Result<std::unique_ptr<Load>> load = Load::prepare(*end.link, plan, size);
      if (!load) return load.error();
      end.load = *std::move(load);
    }
    for (const End& end : pair.ends_) {
      Status status = end.load->warm_up(warm_up, std::max<std::uint64_t>(plan.warmup, 1));
      if (!status.ok()) return status;
    }
    return pair;
  }
  ~Pair() {
    for (End& end : ends_) {
      end.load.reset();
      if (end.link != nullptr) end.link->peer().close();
    }
  }
  Pair(Pair&&) noexcept = default;
  Pair& operator=(Pair&&) = delete;

  /// `other` takes the candidate's place.
  Result<Quad> measure(const GainPlan& plan, bool other_outside, bool rests) {
    Quad quad{.candidate_outside = other_outside, .baseline = {}, .candidate = {}};
    std::array<std::size_t, 2> blocks{};
    for (const bool inner : {false, true, true, false}) {
      const bool is_other = inner != other_outside;
      const Result<Block> block = measure_block(*ends_[is_other ? 1 : 0].load, plan, is_other && rests);
      if (!block) return block.error();
      (is_other ? quad.candidate : quad.baseline)[blocks[is_other ? 1 : 0]++] = *block;
    }
    return quad;
  }

  Status verify() {
    for (const End& end : ends_) {
      if (Status status = end.load->verify(); !status.ok()) return status;
    }
    return {};
  }

 private:
  struct End {
    std::unique_ptr<Link> link;
    std::unique_ptr<Load> load;  // goes first
  };
  Pair() = default;

  std::array<End, 2> ends_;
};

// The quads between the baseline and one other side, each between sessions of its own as far as the plan has them.
class Quads {
 public:
  Quads(const Connect& connect, const GainPlan& plan, Plan load, std::uint64_t size, Side other, std::uint64_t seed)
      : connect_(connect),
        plan_(plan),
        load_(std::move(load)),
        size_(size),
        other_(other),
        other_first_(quad_orders(plan.quads, seed)) {}

  /// Nothing once the plan was stopped: its last blocks were cut short.
  Result<std::optional<Quad>> next(bool other_outside) {
    const std::uint64_t sessions = plan_.pairs_of_sessions();
    const bool rests = other_ == Side::kCandidate;
    if (!pair_ || (measured_ * sessions) % plan_.quads < sessions) {
      if (Status status = end_pair(); !status.ok()) return status;
      Result<Pair> pair = Pair::open(connect_, load_, size_, first_warm_up(plan_), other_, other_first_[measured_]);
      if (!pair) return pair.error();
      pair_.emplace(*std::move(pair));
    }
    ++measured_;
    const Result<Quad> quad = pair_->measure(plan_, other_outside, rests);
    if (!quad) return quad.error();
    return load_.stopped() ? std::optional<Quad>() : *quad;
  }

  /// What was sent arrived, as far as the plan asks for it; the sessions are over.
  Status end_pair() {
    const Status status = pair_ && load_.verify && !load_.stopped() ? pair_->verify() : Status();
    pair_.reset();
    return status;
  }

 private:
  const Connect& connect_;
  const GainPlan& plan_;
  const Plan load_;
  const std::uint64_t size_;
  const Side other_;
  const std::vector<bool> other_first_;
  std::uint64_t measured_ = 0;
  std::optional<Pair> pair_;
};

Result<Series> measure_series(const Connect& connect, const GainPlan& plan, Kind kind, std::uint64_t size,
                              std::uint64_t seed) {
  Plan load = plan.load;
  load.kind = kind;
  Quads quads(connect, plan, load, size, Side::kCandidate, seed ^ kOpeningOrder);
  Quads control(connect, plan, load, size, Side::kBaseline, seed ^ kControlOpeningOrder);
  Series series{.kind = kind, .size = size, .quads = {}, .control = {}, .verified = false};
  for (const bool outside : quad_orders(plan.quads, seed)) {
    if (load.stopped()) return series;
    const Result<std::optional<Quad>> quad = quads.next(outside);
    if (!quad) return quad.error();
    if (!*quad) return series;
    series.quads.push_back(**quad);
    if (!plan.has_control(kind, size)) continue;
    const Result<std::optional<Quad>> beside = control.next(outside);
    if (!beside) return beside.error();
    if (!*beside) return series;
    series.control.push_back(**beside);
  }
  for (Quads* each : {&quads, &control}) {
    if (Status status = each->end_pair(); !status.ok()) return status;
  }
  series.verified = load.verify && !load.stopped();
  return series;
}

double per(double amount, double of) { return of > 0 ? amount / of : 0; }

// What a network costs is not all charged to the processes that use it. An end without time of its own has no figure.
double cpu_of_both(const Block& block) {
  const double softirq = block.one_host ? std::max(block.initiator_softirq, block.target_softirq)
                                        : block.initiator_softirq + block.target_softirq;
  return block.initiator_cpu + block.target_cpu + softirq;
}
double cpu_of_end(const Block& block, double process, double softirq) {
  return process > 0 && !block.one_host ? process + softirq : process;
}

}  // namespace

std::string_view name_of(Metric metric) noexcept {
  constexpr std::array<std::string_view, kMetrics.size() + 1> kNames = {
      "bandwidth",   "bytes_per_cpu_second", "initiator_cpu_seconds_per_gb", "target_cpu_seconds_per_gb", "latency_p50",
      "latency_p99", "samples_per_second"};
  return kNames[static_cast<std::size_t>(metric)];
}

double expected_seconds(const GainPlan& plan) noexcept {
  const double quad = 4 * plan.block * (1 + kWarmUp) * (1 + plan.slow_candidate / 2);
  const double pair = 2 * first_warm_up(plan) + kOpening;
  const auto quads = static_cast<double>(plan.quads);
  const auto pairs = static_cast<double>(plan.pairs_of_sessions());
  const auto series = static_cast<double>(plan.load.sizes.size() * plan.kinds.size() + (plan.control ? 1 : 0));
  return (quad * quads + pair * pairs) * series;
}

double figure_of(const Block& block, Metric metric) noexcept {
  const double bytes = static_cast<double>(block.size) * static_cast<double>(block.operations);
  switch (metric) {
    case Metric::kBandwidth:
      return per(bytes, block.seconds);
    case Metric::kBytesPerCpuSecond:
      return per(bytes, cpu_of_both(block));
    case Metric::kInitiatorCpu:
      return per(cpu_of_end(block, block.initiator_cpu, block.initiator_softirq) * 1e9, bytes);
    case Metric::kTargetCpu:
      return per(cpu_of_end(block, block.target_cpu, block.target_softirq) * 1e9, bytes);
    case Metric::kLatencyP50:
      return static_cast<double>(block.latency_p50);
    case Metric::kLatencyP99:
      return static_cast<double>(block.latency_p99);
    case Metric::kSamplesPerSecond:
      break;  // a load has none
  }
  return 0;
}

Status compare_transports(const Connect& connect, const GainPlan& plan,
                          const std::function<void(const Series&)>& done) {
  std::uint64_t seed = plan.seed;
  for (const std::uint64_t size : plan.load.sizes) {
    for (const Kind kind : plan.kinds) {
      if (plan.load.stopped()) return {};
      const Result<Series> series = measure_series(connect, plan, kind, size, seed++);
      if (!series) {
        return {series.error().code(),
                fmt::format("{} of {}: {}", to_string(kind), format_size(size), series.error().message())};
      }
      done(*series);
    }
  }
  return {};
}

}  // namespace fairlead::bench
