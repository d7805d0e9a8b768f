#include "bench/training/rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "bench/base/cpu_time.h"
#include "bench/collective/reduce.h"

namespace fairlead::bench {
namespace {

using Clock = std::chrono::steady_clock;

// What a rank puts in: each its own number where sums are small enough to be exact (reduce.h), else all the same.
bool have_own_numbers(std::size_t ranks) noexcept { return ranks * (ranks + 1) / 2 <= kMostFilled; }

constexpr std::chrono::milliseconds kPolled{10};

}  // namespace

Result<Trainer> Trainer::prepare(Group* group, const TrainingPlan& plan, std::string_view name,
                                 GradientMemory* memory) {
  group->allow_pauses(plan.step.compute_seconds);
  Result<AllReduce> sum = AllReduce::prepare(group, name, {.bytes = plan.step.fusion_bytes});
  if (!sum) return sum.error();
  return Trainer(group, plan, *std::move(sum), memory);
}

Trainer::Trainer(Group* group, const TrainingPlan& plan, AllReduce sum, GradientMemory* memory)
    : plan_(plan), sum_(std::move(sum)), group_(group), memory_(memory) {
  plan_.step.element_bytes = element_size(plan.dtype);
  gradients_ = gradients_of(plan_.model, plan_.step);
  std::size_t bytes = 0;
  for (const Gradient& gradient : gradients_) bytes += gradient.bytes;
  memory_->known.resize(bytes);
  memory_->summed.resize(bytes);
  fill(plan.dtype, memory_->known, have_own_numbers(group->size()) ? static_cast<unsigned>(group->rank() + 1) : 1);
}

Status Trainer::step() {
  const Clock::time_point began = Clock::now();
  std::size_t offset = 0;
  for (std::size_t at = 0; at < gradients_.size();) {
    const Result<std::uint64_t> end = group_->from_first(group_->rank() == 0 ? end_of_bucket(at, began) : 0);
    if (!end) return end.error();
    if (*end <= at || *end > gradients_.size()) {
      return {Code::kInvalidArgument,
              fmt::format("rank 0 fuses gradients {} to {} of {}: every rank must have the same plan", at, *end,
                          gradients_.size())};
    }
    std::size_t bytes = 0;
    for (; at < *end; ++at) bytes += gradients_[at].bytes;
    sleep_until(began, gradients_[at - 1].ready);  // this rank may have begun later
    if (const Status done = exchange(offset, bytes); !done.ok()) return done;
    offset += bytes;
  }
  sleep_until(began, plan_.step.compute_seconds);
  return {};
}

Status Trainer::sum_of_nothing() { return sum_.all_reduce(plan_.dtype, group_->size(), Algorithm::kRing); }

Status Trainer::check() const {
  const std::size_t ranks = group_->size();
  const auto expected = static_cast<unsigned>(have_own_numbers(ranks) ? ranks * (ranks + 1) / 2 : ranks);
  if (expected > kMostFilled) {
    return {Code::kUnimplemented,
            fmt::format("{} ranks: sums of more than {} may be rounded, and are not verified", ranks, kMostFilled)};
  }
  const std::size_t wrong = find_other(plan_.dtype, memory_->summed, expected);
  if (wrong == memory_->summed.size() / element_size(plan_.dtype)) return {};
  return {Code::kDataLoss, fmt::format("gradient element {} is not the sum of all ranks', {}", wrong, expected)};
}

// An engine that has no thread is polled meanwhile: the others would take this rank for dead.
void Trainer::sleep_until(Clock::time_point began, double seconds) const {
  const auto until = began + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  Engine& engine = group_->engine();
  while (engine.config().progress == Progress::kApplication && until - Clock::now() > kPolled) {
    if (!engine.poll()) std::this_thread::sleep_for(kPolled);
  }
  std::this_thread::sleep_until(until);
}

// What rank 0 has when the last sum is over, or as soon as it has some: all ranks sum the same, as it says.
std::size_t Trainer::end_of_bucket(std::size_t at, Clock::time_point began) const {
  while (true) {
    const double now = std::chrono::duration<double>(Clock::now() - began).count();
    const Bucket bucket = next_bucket(gradients_, at, now, plan_.step.fusion_bytes);
    if (bucket.start <= now) return bucket.end;
    sleep_until(began, bucket.start);  // by then more may be known
  }
}

// One bucket; a gradient that is larger than the buffer goes through it in slices.
Status Trainer::exchange(std::size_t offset, std::size_t bytes) {
  while (bytes > 0) {
    const std::size_t slice = std::min(bytes, sum_.bytes());
    std::memcpy(sum_.data(), memory_->known.data() + offset, slice);
    if (const Status done = sum_.all_reduce(plan_.dtype, slice / element_size(plan_.dtype)); !done.ok()) return done;
    std::memcpy(memory_->summed.data() + offset, sum_.data(), slice);
    offset += slice;
    bytes -= slice;
    ++sums_;
  }
  return {};
}

namespace {

Status take_steps(Group& group, const TrainingPlan& plan, TrainingTimes& times, const std::atomic<int>* stop) {
  GradientMemory memory;
  Result<Trainer> trainer = Trainer::prepare(&group, plan, "gradients", &memory);
  if (!trainer) return trainer.error();
  std::uint64_t before = 0;
  CpuStopwatch whole;
  for (std::size_t i = 0; i < plan.warm_up + plan.steps; ++i) {
    const Result<std::uint64_t> stopped = group.from_first(stop != nullptr && *stop != 0 ? 1 : 0);
    if (!stopped) return stopped.error();
    times.interrupted = *stopped != 0;
    if (times.interrupted) break;
    if (i == plan.warm_up) {
      if (const Status all = group.barrier(); !all.ok()) return all;
      before = trainer->sums();
      whole.restart();
    }
    const Stopwatch one;
    if (const Status done = trainer->step(); !done.ok()) return done;
    if (i < plan.warm_up) continue;
    times.step_seconds.push_back(one.seconds());
    times.cpu_seconds = whole.cpu_seconds();
    times.sums = trainer->sums() - before;
  }
  if (!times.step_seconds.empty()) {
    if (const Status same = trainer->check(); !same.ok()) return same;
  }
  return group.barrier();
}

}  // namespace

Status train(Group& group, const TrainingPlan& plan, TrainingTimes* times, const std::atomic<int>* stop) {
  *times = {};
  const Status ended = take_steps(group, plan, *times, stop);
  times->interrupted |= !ended.ok();
  return ended;
}

}  // namespace fairlead::bench
