#include "bench/gain/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "bench/base/sizes.h"
#include "bench/net/load.h"

namespace fairlead::bench {
namespace {

// Before the clock of a block starts, so that its predecessor's silence is over: congestion windows that a pause
// shrank, threads that sleep.
constexpr double kWarmUp = 0.1;        // of a block
constexpr double kFirstWarmUp = 0.25;  // seconds
constexpr unsigned kSlices = 10;       // of a block whose candidate rests between them

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

Result<Quad> measure_quad(Load& baseline, Load& candidate, const GainPlan& plan, bool candidate_outside, bool rests) {
  Quad quad{.candidate_outside = candidate_outside, .baseline = {}, .candidate = {}};
  std::size_t of_baseline = 0, of_candidate = 0;
  for (const bool inner : {false, true, true, false}) {
    const bool is_candidate = inner != candidate_outside;
    const Result<Block> block = measure_block(is_candidate ? candidate : baseline, plan, is_candidate && rests);
    if (!block) return block.error();
    if (is_candidate) {
      quad.candidate[of_candidate++] = *block;
    } else {
      quad.baseline[of_baseline++] = *block;
    }
  }
  return quad;
}

// A link has one load at a time, so these are for one series.
class Loads {
 public:
  Status prepare(const Sessions& sessions, const Plan& plan, std::uint64_t size, bool with_control) {
    for (Link* link : {sessions.baseline, sessions.candidate, with_control ? sessions.control : nullptr}) {
      if (link == nullptr) continue;
      Result<std::unique_ptr<Load>> load = Load::prepare(*link, plan, size);
      if (!load) return load.error();
      if (Status status = (*load)->warm_up(kFirstWarmUp, std::max<std::uint64_t>(plan.warmup, 1)); !status.ok()) {
        return status;
      }
      loads_.push_back(*std::move(load));
    }
    return {};
  }
  [[nodiscard]] Load& baseline() const noexcept { return *loads_[0]; }
  [[nodiscard]] Load& candidate() const noexcept { return *loads_[1]; }
  [[nodiscard]] Load* control() const noexcept { return loads_.size() > 2 ? loads_[2].get() : nullptr; }
  Status verify() const {
    for (const auto& load : loads_) {
      if (Status status = load->verify(); !status.ok()) return status;
    }
    return {};
  }

 private:
  std::vector<std::unique_ptr<Load>> loads_;
};

Result<Series> measure_series(const Sessions& sessions, const GainPlan& plan, Kind kind, std::uint64_t size,
                              std::uint64_t seed) {
  Plan load_plan = plan.load;
  load_plan.kind = kind;
  Loads loads;
  if (Status status = loads.prepare(sessions, load_plan, size, plan.has_control(kind, size)); !status.ok())
    return status;
  Series series{.kind = kind, .size = size, .quads = {}, .control = {}, .verified = false};
  for (const bool outside : quad_orders(plan.quads, seed)) {
    if (plan.load.stopped()) return series;
    const Result<Quad> quad = measure_quad(loads.baseline(), loads.candidate(), plan, outside, true);
    if (!quad) return quad.error();
    if (plan.load.stopped()) return series;  // its last blocks were cut short
    series.quads.push_back(*quad);
    if (loads.control() == nullptr) continue;
    const Result<Quad> control = measure_quad(loads.baseline(), *loads.control(), plan, outside, false);
    if (!control) return control.error();
    if (plan.load.stopped()) return series;
    series.control.push_back(*control);
  }
  if (plan.load.verify) {
    if (Status status = loads.verify(); !status.ok()) return status;
    series.verified = true;
  }
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
  const auto series = static_cast<double>(plan.load.sizes.size() * plan.kinds.size() + (plan.control ? 1 : 0));
  return quad * static_cast<double>(plan.quads) * series;
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

Result<std::vector<Series>> compare_transports(const Sessions& sessions, const GainPlan& plan,
                                               const std::function<void(const Series&)>& done) {
  std::vector<Series> all;
  for (const std::uint64_t size : plan.load.sizes) {
    for (const Kind kind : plan.kinds) {
      if (plan.load.stopped()) return all;
      Result<Series> series = measure_series(sessions, plan, kind, size, plan.seed + all.size());
      if (!series) {
        return Status(series.error().code(),
                      fmt::format("{} of {}: {}", to_string(kind), format_size(size), series.error().message()));
      }
      done(*series);
      all.push_back(*std::move(series));
    }
  }
  return all;
}

}  // namespace fairlead::bench
