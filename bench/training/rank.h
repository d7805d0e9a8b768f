// A rank that trains, but for the training: its accelerator is a clock that says when which gradient would be known;
// what is done with gradients is real. They are copied into a fusion buffer, summed over all ranks and copied out, as
// Horovod does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

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

struct TrainingTimes {
  std::vector<double> step_seconds;  // without the steps that warm up
  double cpu_seconds = 0;            // of this process, in all of them
  std::uint64_t sums = 0;            // all-reduces in all of them
};

/// Runs the plan as this rank of `group`; every rank does, with the same plan. Afterwards what came out is compared
/// with what it must be. Errors: kDataLoss (it is something else), those of AllReduce.
Result<TrainingTimes> train(Group& group, const TrainingPlan& plan);

}  // namespace fairlead::bench
