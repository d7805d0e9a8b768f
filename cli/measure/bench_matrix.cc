#include <fmt/format.h>

#include <string>

#include "bench/base/file_output.h"
#include "bench/matrix/report.h"
#include "bench/net/options.h"
#include "cli/base/args.h"
#include "cli/base/console.h"
#include "cli/base/engine_options.h"
#include "cli/commands.h"
#include "cli/measure/interruption.h"
#include "cli/measure/ranks.h"

namespace fairlead::cli {
namespace {

struct Options {
  EngineConfig config;
  RankOptions ranks;
  bench::MatrixPlan plan;
  std::string json, svg;
  double slow = 1.25;
};

Status measure_as(bench::Group& group, const Options& options, Console& console) {
  const auto tell = [&console](std::size_t done, std::size_t all) {
    console.bar(static_cast<double>(done) / static_cast<double>(all), fmt::format("turn {} of {}", done, all));
  };
  if (group.rank() == 0) {
    console.line(fmt::format("{} ranks have met: {} turns, of {:g} s or more each", group.size(),
                             bench::tournament(group.size()).size(), 2 * options.plan.duration));
  }
  bench::Matrix matrix;
  const Status ended = bench::measure_matrix(group, options.plan, &matrix, tell);
  if (group.rank() != 0) return ended;
  if (matrix.latency_p50.measured().empty()) {
    if (ended.ok()) console.line("interrupted before the first turn was over");
    return ended;
  }
  const bench::MatrixOutliers outliers = bench::find_outliers(matrix, options.slow);
  for (const std::string& line : bench::lines(matrix, outliers)) console.line(line);
  Status json, svg;
  if (!options.json.empty()) {
    const bench::Json document = bench::report(matrix, options.plan, outliers, options.slow);
    json = bench::write_text(options.json, document.dump(2) + "\n");
  }
  if (!options.svg.empty()) svg = bench::write_text(options.svg, bench::draw(matrix, outliers));
  if (!ended.ok()) return ended;
  return json.ok() ? svg : json;
}

}  // namespace

int bench_matrix_command(Words words) {
  Options options;
  options.plan.stop = &interruption();
  Args args(
      "bench matrix",
      "Measures bandwidth and latency of writes between all pairs of several ranks, and names those that are slow.",
      "Examples:\n"
      "  fairlead bench matrix --local 4 --transport tcp\n"
      "  mpirun -n 4 fairlead bench matrix --root node1:7473 --json report.json --svg map.svg\n"
      "  srun -N 16 fairlead bench matrix --svg map.svg\n"
      "All pairs of a turn are at work at once, and share no rank. See docs/benchmarks.md.");
  add_rank_options(args, &options.ranks);
  args.option("--size", "BYTES", "Of writes, for bandwidth (default 1M)",
              set_size(&options.plan.size, 1, bench::kMaxSize));
  args.option("--latency-size", "BYTES", "Of writes, for latency (default 8)",
              set_size(&options.plan.latency_size, 1, bench::kMaxSize));
  args.option("--depth", "N", "Writes under way, for bandwidth (default 8)",
              set_number(&options.plan.depth, 1, bench::kMaxDepth));
  args.option("--duration", "S", "Seconds that each pair has for either, in each direction (default 0.2)",
              set_seconds(&options.plan.duration, 0.01, 3600));
  args.option("--slow-factor", "FACTOR", "Name what is so many times worse than usual, at least (default 1.25)",
              set_decimal(&options.slow, "a factor", 1.01, 1e6));
  args.option("--json", "FILE", "Write a report; - for standard output", set_text(&options.json));
  args.option("--svg", "FILE", "Draw a heat map; - for standard output", set_text(&options.svg));
  add_engine_options(args, &options.config);
  args.rule([&]() -> std::string {
    if (options.json == "-" && options.svg == "-") return "--json - and --svg - exclude each other";
    const std::size_t ranks = options.ranks.local + options.ranks.places.size() + options.ranks.size;
    return ranks == 1 ? "1 rank has no pair: there must be 2 or more" : "";
  });
  if (const auto exit = args.parse(words)) return *exit;
  Console console("bench", options.json == "-" || options.svg == "-");
  for (const std::string& file : {options.json, options.svg}) {
    if (file.empty()) continue;
    if (const Status ok = bench::check_writable(file); !ok.ok()) {
      console.error(ok);
      return kFailure;
    }
  }
  return run_as_ranks(options.ranks, options.config, console,
                      [&](bench::Group& group) { return measure_as(group, options, console); });
}

}  // namespace fairlead::cli
