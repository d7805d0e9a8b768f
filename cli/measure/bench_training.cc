#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "bench/base/file_output.h"
#include "bench/base/host.h"
#include "bench/base/report_head.h"
#include "bench/base/sizes.h"
#include "bench/gain/statistics.h"
#include "bench/training/rank.h"
#include "cli/base/args.h"
#include "cli/base/console.h"
#include "cli/base/engine_options.h"
#include "cli/commands.h"
#include "cli/measure/interruption.h"
#include "cli/measure/ranks.h"
#include "cli/measure/training_options.h"

namespace fairlead::cli {
namespace {

struct Options {
  EngineConfig config;
  RankOptions ranks;
  TrainingOptions training;
  std::string json;
};

struct Figures {
  double step, samples_per_second, efficiency, bytes;
  std::optional<double> cpu_per_gigabyte;
};

Figures figures_of(const Options& options, const bench::TrainingTimes& times, std::size_t ranks,
                   std::optional<double> cpu_seconds) {
  const auto n = static_cast<double>(ranks);
  const double step = bench::median(times.step_seconds);
  const double bytes =
      2 * (n - 1) / n *
      static_cast<double>(options.training.plan.model.parameters() * element_size(options.training.plan.dtype));
  const double sent = bytes * n * static_cast<double>(times.step_seconds.size());
  if (cpu_seconds) cpu_seconds = sent > 0 ? *cpu_seconds / (sent / 1e9) : 0;
  return {step, static_cast<double>(options.training.batch) * n / step, options.training.compute_seconds / step, bytes,
          cpu_seconds};
}

Status report(const Options& options, const bench::Group& group, const bench::TrainingTimes& times,
              const std::string& path, const Figures& figures, const Status& ended, Console& console) {
  const bench::Model& model = options.training.plan.model;
  const auto [least, most] = std::minmax_element(times.step_seconds.begin(), times.step_seconds.end());
  if (!path.empty()) console.line(path);
  console.line(fmt::format(
      "{}: {} of gradients in {}, {} ranks, {} samples a step and rank, {:.1f} ms to compute them (given, not "
      "measured)",
      model.name, bench::format_bytes(model.parameters() * element_size(options.training.plan.dtype)),
      options.training.dtype, group.size(), options.training.batch, options.training.compute_seconds * 1e3));
  console.line(fmt::format("a step {:.1f} ms, {:.1f} to {:.1f}, of {}: {:.1f} {}s/s, efficiency {:.3f}",
                           figures.step * 1e3, *least * 1e3, *most * 1e3, times.step_seconds.size(),
                           figures.samples_per_second, model.sample, figures.efficiency));
  std::string cost = fmt::format("each rank sends {} a step", bench::format_bytes(figures.bytes));
  if (figures.cpu_per_gigabyte) cost += fmt::format("; {:.3f} core-seconds a GB sent", *figures.cpu_per_gigabyte);
  console.line(cost);
  if (times.interrupted) console.line("interrupted: what stands above is all that was measured");
  if (options.json.empty()) return {};
  bench::Json::Array steps;
  for (const double seconds : times.step_seconds) steps.emplace_back(seconds);
  const bench::Json document = bench::report_head(
      "fairlead.bench.training/1",
      {{"host", to_json(bench::host_info())},
       {"path", path},
       {"model", model.name},
       {"model_source", model.source},
       {"parameters", std::uint64_t{model.parameters()}},
       {"dtype", options.training.dtype},
       {"ranks", std::uint64_t{group.size()}},
       {"batch", options.training.batch},
       {"compute_seconds", options.training.compute_seconds},
       {"overlap", options.training.plan.step.overlap},
       {"fusion_bytes", options.training.fusion},
       {"steps", std::move(steps)},
       {"sums_per_step", static_cast<double>(times.sums) / static_cast<double>(times.step_seconds.size())},
       {"step_seconds_p50", figures.step},
       {"samples_per_second", figures.samples_per_second},
       {"efficiency", figures.efficiency},
       {"bytes_sent_per_step_and_rank", figures.bytes},
       {"cpu_seconds_per_gigabyte", figures.cpu_per_gigabyte ? bench::Json(*figures.cpu_per_gigabyte) : bench::Json()},
       {"verified", ended.ok()},
       {"interrupted", times.interrupted},
       {"error", ended.ok() ? bench::Json() : bench::Json(ended.to_string())}});
  return bench::write_text(options.json, document.dump(2) + "\n");
}

Status train_as(bench::Group& group, const Options& options, Console& console) {
  const std::string path = group.size() > 1 && group.rank() == 0 ? group.peer(1).explain() : std::string();
  bench::TrainingTimes times;
  Status ended = bench::train(group, options.training.plan, &times, &interruption());
  std::optional<double> cpu_seconds;  // of all ranks, unless one failed
  if (ended.ok()) {
    const Result<std::vector<std::uint64_t>> cpu = group.gather(static_cast<std::uint64_t>(times.cpu_seconds * 1e9));
    ended = cpu.status();
    if (cpu) cpu_seconds = static_cast<double>(std::accumulate(cpu->begin(), cpu->end(), std::uint64_t{0})) * 1e-9;
  }
  if (group.rank() != 0) return ended;
  if (times.step_seconds.empty()) {
    if (ended.ok()) console.line("interrupted before the first step that counts was over");
    return ended;
  }
  times.interrupted |= !ended.ok();
  const Figures figures = figures_of(options, times, group.size(), cpu_seconds);
  const Status written = report(options, group, times, path, figures, ended, console);
  return ended.ok() ? written : ended;
}

}  // namespace

int bench_training_command(Words words) {
  Options options;
  options.config.progress = fairlead::Progress::kApplication;  // a rank waits for its neighbour, and does nothing else
  Args args("bench training",
            "Runs steps of data-parallel training over several ranks: gradients are summed for real, while a clock "
            "stands for the "
            "accelerator that computes them.",
            "Examples:\n"
            "  fairlead bench training --model resnet50 --local 4 --transport tcp --compute-ms 150 --batch 64\n"
            "  mpirun -n 4 fairlead bench training --root node1:7473 --json report.json\n"
            "What is measured: docs/benchmarks.md.");
  add_rank_options(args, &options.ranks);
  add_training_options(args, &options.training, "--model");
  args.option("--steps", "N", "Steps that count (default 10)", set_number(&options.training.plan.steps, 1, 1'000'000));
  args.option("--warm-up", "N", "Steps before them (default 2)",
              set_number(&options.training.plan.warm_up, 0, 1'000'000));
  args.option("--json", "FILE", "Write a report; - for standard output", set_text(&options.json));
  add_engine_options(args, &options.config);
  if (const auto exit = args.parse(words)) return *exit;
  Console console("bench", options.json == "-");
  if (const Status ok = options.json.empty() ? Status() : bench::check_writable(options.json); !ok.ok()) {
    console.error(ok);
    return kFailure;
  }
  return run_as_ranks(options.ranks, options.config, console,
                      [&](bench::Group& group) { return train_as(group, options, console); });
}

}  // namespace fairlead::cli
