#include "cli/measure/training_options.h"

#include <utility>

namespace fairlead::cli {

void add_training_options(Args& args, TrainingOptions* options, const std::string& model_flag,
                          const std::string& model_help) {
  options->plan.model = *bench::model_by_name("resnet50");
  args.option(model_flag, "NAME", model_help, [options](std::string_view name) {
    Result<bench::Model> model = bench::model_by_name(name);
    if (!model) return model.error();
    options->plan.model = *std::move(model);
    return Status();
  });
  args.option("--batch", "N", "Samples that a rank computes in a step (default 64)",
              set_number(&options->batch, 1, 1'000'000));
  args.option("--compute-ms", "T", "Milliseconds that it takes for them, forward and backward (default 200)",
              [options](std::string_view text) {
                double ms = 0;
                const Status ok = set_decimal(&ms, "milliseconds", 0, 1e6)(text);
                options->compute_seconds = ms * 1e-3;
                return ok;
              });
  args.option("--dtype", "TYPE", "Of gradients: F32, F16 or BF16 (default F32)",
              set_choice(&options->dtype, {"F32", "F16", "BF16"}));
  args.option("--fusion", "BYTES", "Fuse gradients into sums of at most this size (default 64M)",
              set_size(&options->fusion, 4096, std::uint64_t{4} << 30));
  args.flag("--no-overlap", &options->no_overlap, "Begin to sum when all gradients are known");
  args.rule([options] {
    options->plan.dtype = *dtype_from_string(options->dtype);
    options->plan.step = {.compute_seconds = options->compute_seconds,
                          .fusion_bytes = options->fusion / 4 * 4,
                          .overlap = !options->no_overlap};
    return std::string();
  });
}

}  // namespace fairlead::cli
