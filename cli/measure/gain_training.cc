#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "bench/base/file_output.h"
#include "bench/base/host_load.h"
#include "bench/base/sizes.h"
#include "bench/gain/training.h"
#include "cli/base/args.h"
#include "cli/base/console.h"
#include "cli/base/engine_options.h"
#include "cli/commands.h"
#include "cli/measure/gain_metrics.h"
#include "cli/measure/interruption.h"
#include "cli/measure/prometheus_file.h"
#include "cli/measure/ranks.h"
#include "cli/measure/training_options.h"

namespace fairlead::cli {
namespace {

constexpr std::size_t kRanks = 4;
constexpr double kSmallestScale = 1e-4;

struct Options {
  EngineConfig config;
  RankOptions ranks;
  TrainingOptions training;
  bench::TrainingGainPlan plan;
  std::string baseline = "tcp", candidate = "verbs", json, html, prometheus;
  bool no_control = false;
};

Status read_scale(std::string_view text, double* scale) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *scale);
  if (error == std::errc() && end == text.data() + text.size() && *scale >= kSmallestScale && *scale <= 1) return {};
  return {Code::kInvalidArgument, fmt::format("'{}' is no part of a model: from {:g} to 1", text, kSmallestScale)};
}

/// "10,25,100": Gb/s.
Status read_links(std::string_view text, std::vector<double>* links) {
  links->clear();
  while (true) {
    const std::string_view word = text.substr(0, text.find(','));
    double gigabits = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), gigabits);
    if (error != std::errc() || end != word.data() + word.size() || !(gigabits >= 0.001 && gigabits <= 10'000)) {
      return {Code::kInvalidArgument,
              fmt::format("'{}' is no rate of a link: Gb/s from 0.001 to 10000, several with commas between", word)};
    }
    links->push_back(gigabits * 1e9 / 8);
    if (word.size() == text.size()) return {};
    text.remove_prefix(word.size() + 1);
  }
}

// The rules that span several flags. Empty: all is well.
std::string complete(Options& options, const Args& args) {
  if (args.given("--transport")) return "say --baseline and --candidate in place of --transport";
  if (options.json == "-" && options.html == "-") return "--json - and --html - exclude each other";
  if (options.training.compute_seconds == 0)
    return "--compute-ms 0: without computation there is no efficiency to compare";
  bench::TrainingGainPlan& plan = options.plan;
  plan.training.model = scaled(options.training.plan.model, plan.scale);
  plan.training.dtype = options.training.plan.dtype;
  plan.training.step = options.training.plan.step;
  plan.training.step.compute_seconds *= plan.scale;
  plan.batch = options.training.batch;
  plan.candidate = options.candidate;
  plan.control = !options.no_control;
  const std::uint64_t element = element_size(plan.training.dtype);
  plan.sum_bytes = std::min<std::uint64_t>({plan.sum_bytes, plan.gradient_bytes(), plan.training.step.fusion_bytes}) /
                   element * element;
  return {};
}

// Each that was asked for, also where another cannot be written.
Status write_reports(const Options& options, const bench::TrainingReport& report) {
  Status json, html;
  if (!options.json.empty()) json = bench::write_text(options.json, bench::to_json(report).dump() + "\n");
  if (!options.html.empty()) html = bench::write_text(options.html, bench::page_of(report));
  const Status prometheus = write_prometheus_file(options.prometheus, gain_metrics(report.gain));
  return !json.ok() ? json : !html.ok() ? html : prometheus;
}

Status compare_as(bench::Group& group, const Options& options, Console& console) {
  const bool leads = group.rank() == 0;
  std::vector<std::string> warnings;
  if (leads) {
    warnings = bench::busy_warnings();
    for (const std::string& warning : warnings) console.line("warning: " + warning);
  }
  std::size_t quads = 0;
  Result<bench::TrainingRun> run = bench::compare_training(group, options.plan, [&](const bench::TrainingQuad& quad) {
    console.line(fmt::format("quad {} of {}: steps of {:.1f} and {:.1f} ms | {:.1f} and {:.1f} ms", ++quads,
                             options.plan.quads, quad.baseline[0].step * 1e3, quad.baseline[1].step * 1e3,
                             quad.candidate[0].step * 1e3, quad.candidate[1].step * 1e3));
  });
  if (!run) return run.error();
  if (!leads) return {};
  const bench::TrainingReport report = bench::report_of(*std::move(run), options.plan, std::move(warnings));
  console.line("baseline: " + report.baseline.facts.path);
  console.line("candidate: " + report.candidate.facts.path);
  for (const std::string& line : bench::lines_of(report)) console.line(line);
  return write_reports(options, report);
}

void add_options(Args& args, Options& options) {
  bench::TrainingGainPlan* const plan = &options.plan;
  options.ranks.local_by_default = kRanks;
  add_training_options(args, &options.training, "--training", "resnet50, vgg16 or bert-base");
  args.option("--scale", "PART",
              "Of the model and of its computing time: 0.1 for a tenth of both, which is as many bytes for each second "
              "(default 1)",
              [plan](std::string_view text) { return read_scale(text, &plan->scale); });
  add_rank_options(args, &options.ranks);
  args.option("--baseline", "T", "What is compared with: a transport, as of --transport (default tcp)",
              set_text(&options.baseline));
  args.option("--candidate", "T", "What is compared (default verbs: the best device)", set_text(&options.candidate));
  args.option(
      "--quads", "N",
      fmt::format("Quads of blocks (default {}; below {} nothing is claimed)", plan->quads, bench::kFewestQuads),
      set_number(&plan->quads, 1, 10'000));
  args.option("--steps", "N", "Steps of a block, of which a quad has four (default 1)",
              set_number(&plan->training.steps, 1, 1000));
  args.option("--sum", "BYTES",
              "What a block sums before its steps, for the parameters (default 16M, at most all gradients)",
              set_size(&plan->sum_bytes, 4096, std::uint64_t{4} << 30));
  args.option("--seed", "N", "Of the random order, and of the bootstrap (default 1)",
              set_number(&plan->seed, 0, 1'000'000'000));
  args.flag("--no-control", &options.no_control, "Leave the baseline beside itself out");
  args.option("--link-gbps", "LIST", "Predict for links of these rates, too, Gb/s: 10,25,100",
              [plan](std::string_view text) { return read_links(text, &plan->links); });
  args.option("--link-rtt-ms", "T",
              "So much longer is their round trip than that of the link that is measured (default 0)",
              [plan](std::string_view text) {
                double ms = 0;
                const Status ok = set_decimal(&ms, "milliseconds", 0, 10'000)(text);
                plan->links_round_trip = ms * 1e-3;
                return ok;
              });
  args.option("--json", "FILE", "Write a report; - for standard output", set_text(&options.json));
  args.option("--html", "FILE", "Write a page that needs no other file; - for standard output",
              set_text(&options.html));
  add_prometheus_file(args, &options.prometheus);
}

}  // namespace

int gain_training_command(Words words) {
  Options options;
  options.plan.training.steps = 1;
  options.plan.stop = &interruption();
  Args args("gain",
            "Compares two transports by steps of data-parallel training: blocks of both in turn, a ratio with its "
            "interval and a verdict, and what follows for links that are not here.",
            "Examples:\n"
            "  fairlead gain --training resnet50 --candidate verbs:soft0 --compute-ms 150 --link-gbps 25,100 --html "
            "gain.html\n"
            "  mpirun -n 4 -H a,b,c,d fairlead gain --training bert-base --root a:7473 --json report.json\n"
            "Without --local, --ranks, --root and a launcher: 4 ranks of this host.\n"
            "How to read it: docs/benchmarking.md.");
  add_options(args, options);
  add_engine_options(args, &options.config);
  args.rule([&] { return complete(options, args); });
  if (const auto exit = args.parse(words)) return *exit;
  options.config.transport = options.baseline;
  Console console("gain", options.json == "-" || options.html == "-");
  for (const std::string& file : {options.json, options.html, options.prometheus}) {
    const Status ok = file.empty() ? Status() : bench::check_writable(file);
    if (ok.ok()) continue;
    console.error(ok);
    return kFailure;
  }
  return run_as_ranks(options.ranks, options.config, console,
                      [&](bench::Group& group) { return compare_as(group, options, console); });
}

}  // namespace fairlead::cli
