// A rank that trains, but for the training: its accelerator is a clock that says when which gradient would be known;
// what is done with gradients is real. They are copied into a fusion buffer, summed over all ranks and copied out, as
// Horovod does.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "bench/collective/all_reduce.h"
#include "bench/collective/group.h"
#include "bench/training/models.h"
#include "bench/training/step.h"
#include "fairlead/tensor.h"

namespace fairlead::bench {

struct TrainingPlan {
  Model model;
  StepOptions step;  // element_bytes follows `dtype`
  DType dtype = DType::kF32;
  std::size_t warm_up = 2, steps = 10;
};

/// All gradients of a rank, in the order in which they become known, and their sums. Trainers may share one in turn.
struct GradientMemory {
  std::vector<std::byte> known, summed;
};

/// One rank of a group, step by step; every rank makes the same calls. Threads: one at a time. Errors of all calls:
/// those of AllReduce; after any failure the group is to be left.
class Trainer {
 public:
  /// `name`: the same at every rank, and of no other trainer of these engines. `group` and `memory` must outlive it.
  static Result<Trainer> prepare(Group* group, const TrainingPlan& plan, std::string_view name, GradientMemory* memory);

  /// One step. Errors: also kInvalidArgument (the ranks' plans differ).
  Status step();
  /// The first `bytes` of the gradients, at most all, as a bucket is summed: copied in, summed, copied out.
  Status sum(std::size_t bytes) { return exchange(0, bytes); }
  /// Steps of a ring that carry one element: what a step costs beyond its bytes.
  Status sum_of_nothing();
  /// Whether the last step gave what it must. Errors: kDataLoss.
  [[nodiscard]] Status check() const;

  [[nodiscard]] std::uint64_t sums() const noexcept { return sums_; }

 private:
  using Clock = std::chrono::steady_clock;
  Trainer(Group* group, const TrainingPlan& plan, AllReduce sum, GradientMemory* memory);
  void sleep_until(Clock::time_point began, double seconds) const;
  [[nodiscard]] std::size_t end_of_bucket(std::size_t at, Clock::time_point began) const;
  Status exchange(std::size_t offset, std::size_t bytes);

  TrainingPlan plan_;
  std::vector<Gradient> gradients_;
  AllReduce sum_;
  Group* group_;
  GradientMemory* memory_;
  std::uint64_t sums_ = 0;
};

struct TrainingTimes {
  std::vector<double> step_seconds;  // without the steps that warm up
  double cpu_seconds = 0;            // of this process, in all of them
  std::uint64_t sums = 0;            // all-reduces in all of them
  bool interrupted = false;
};

/// Runs the plan as this rank of `group`; every rank does, with the same plan. Afterwards what came out is compared
/// with what it must be. Once `stop` is not 0 at rank 0 the step under way is the last, at all of them. Errors:
/// kDataLoss (it is something else), those of AllReduce; `*times` has the steps that were over by then, interrupted.
Status train(Group& group, const TrainingPlan& plan, TrainingTimes* times, const std::atomic<int>* stop = nullptr);

}  // namespace fairlead::bench
