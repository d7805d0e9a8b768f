// What a step of training is, as the flags of the commands that run some say it.
#pragma once

#include <cstdint>
#include <string>

#include "bench/training/rank.h"
#include "cli/base/args.h"

namespace fairlead::cli {

struct TrainingOptions {
  bench::TrainingPlan plan;      // complete after args.parse()
  std::uint64_t batch = 64;      // samples that a rank computes in a step,
  double compute_seconds = 0.2;  // in so long
  std::string dtype = "F32";
  std::uint64_t fusion = bench::StepOptions{}.fusion_bytes;
  bool no_overlap = false;
};

/// `model_flag` NAME, --batch, --compute-ms, --dtype, --fusion and --no-overlap. `options` must outlive args.parse().
/// `model_help`: with the default, if the command can be had without that flag.
void add_training_options(Args& args, TrainingOptions* options, const std::string& model_flag,
                          const std::string& model_help = "resnet50, vgg16 or bert-base (default resnet50)");

}  // namespace fairlead::cli
