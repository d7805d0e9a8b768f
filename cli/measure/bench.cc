#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "bench/base/cores.h"
#include "bench/base/file_output.h"
#include "bench/base/host_load.h"
#include "bench/base/sizes.h"
#include "bench/memory/end_memory.h"
#include "bench/net/columns.h"
#include "bench/net/report.h"
#include "cli/base/args.h"
#include "cli/base/console.h"
#include "cli/base/ticker.h"
#include "cli/commands.h"
#include "cli/measure/bench_options.h"
#include "cli/measure/bench_side.h"
#include "cli/measure/interruption.h"
#include "cli/measure/local_end.h"
#include "cli/measure/prometheus_file.h"
#include "cli/measure/result_metrics.h"
#include "cli/measure/written.h"

namespace fairlead::cli {
namespace {

// One size once, over one of the sides.
Status measure_once(BenchSide& side, const bench::Plan& plan, std::uint64_t size, bench::Measured& measured,
                    Console& console) {
  Result<bench::Sample> sample = [&] {
    const double seconds = plan.iterations == 0 && plan.interval == 0 ? plan.duration : 0;
    const Ticker ticker(console, bench::format_size(size), seconds);
    return bench::measure(side.sessions, plan, size);
  }();
  if (sample) {
    measured.add(*sample);
    return {};
  }
  if (plan.stopped()) return {};
  return {sample.error().code(), fmt::format("size {}: {}", bench::format_size(size), sample.error().message())};
}

void show(const bench::Plan& plan, const bench::Measured& measured, const std::string& name, bool perftest,
          Console& console) {
  if (perftest) return console.line(bench::perftest_line(plan, measured.sample) + name);
  console.line(bench::table_line(measured.sample) + name);
  for (const bench::Share& part : measured.sample.parts)
    console.line(bench::part_line(part, measured.sample.size) + name);
  if (measured.bytes_per_second.size() > 1) console.line(bench::repeats_line(measured) + name);
}

// All sides in turn, so that none has the quieter half of the machine's time; another begins each round. What was
// measured stays, whatever goes wrong after it.
Status measure_size(std::vector<BenchSide>& sides, const bench::Plan& plan, std::uint64_t size, bool perftest,
                    Console& console) {
  std::vector<bench::Measured> measured(sides.size());
  Status status;
  for (std::uint64_t round = 0; round < plan.repeat && status.ok() && !plan.stopped(); ++round) {
    for (std::size_t i = 0; i < sides.size() && status.ok() && !plan.stopped(); ++i) {
      const std::size_t turn = (round + i) % sides.size();
      status = measure_once(sides[turn], plan, size, measured[turn], console);
    }
  }
  for (std::size_t i = 0; i < sides.size(); ++i) {
    if (measured[i].bytes_per_second.empty()) continue;
    if (measured[i].bytes_per_second.size() < plan.repeat) measured[i].sample.interrupted = true;
    show(plan, measured[i], sides.size() > 1 ? "  " + sides[i].setting.transport : "", perftest, console);
    sides[i].sizes.push_back(std::move(measured[i]));
  }
  return status;
}

bench::Json json_of(const BenchOptions& options, const std::vector<BenchSide>& sides) {
  bench::Json::Array reports;
  for (const BenchSide& side : sides)
    reports.push_back(bench::report(options.plan, options.config, side.setting, side.sizes));
  if (options.compare.empty()) return reports.front();
  return bench::Json::Object{{"schema", "fairlead.bench.compare/1"}, {"transports", std::move(reports)}};
}

std::string csv_of(const BenchOptions& options, const std::vector<BenchSide>& sides) {
  std::string lines = bench::csv_head();
  for (const BenchSide& side : sides) {
    for (const bench::Measured& size : side.sizes) lines += bench::csv_line(options.plan, side.setting, size);
  }
  return lines;
}

// Each that was asked for, also where another cannot be written. False: one could not, which was told.
bool write_reports(const BenchOptions& options, const std::vector<BenchSide>& sides, Console& console) {
  std::vector<Status> written;
  if (!options.json.empty()) written.push_back(bench::write_text(options.json, json_of(options, sides).dump(2) + "\n"));
  if (!options.csv.empty()) written.push_back(bench::write_text(options.csv, csv_of(options, sides)));
  std::vector<MeasuredSide> measured;
  for (const BenchSide& side : sides) measured.push_back({&side.setting, side.sizes});
  written.push_back(write_prometheus_file(options.prometheus, result_metrics(options.plan, measured)));
  return all_written(written, console);
}

int measure(std::vector<BenchSide>& sides, const BenchOptions& options, const std::vector<std::string>& warnings,
            Console& console) {
  const bool perftest = options.columns == "perftest";
  console.line(perftest ? bench::perftest_head(options.plan) : bench::table_head(options.plan));
  Status status;
  for (const std::uint64_t size : options.plan.sizes) {
    if (options.plan.stopped() || !status.ok()) break;
    bench::Plan plan = options.plan;
    plan.tell = [&](const bench::Interval& interval) { console.line(bench::interval_line(interval, size)); };
    status = measure_size(sides, plan, size, perftest, console);
  }
  if (options.plan.stopped()) console.line("interrupted: what stands above is all that was measured");
  if (!status.ok()) console.error(status);
  for (BenchSide& side : sides) {
    side.setting.interrupted = options.plan.stopped() || !status.ok();
    if (!status.ok()) side.setting.error = status.to_string();
    side.setting.warnings.insert(side.setting.warnings.begin(), warnings.begin(), warnings.end());
    for (const auto& link : side.links) link->peer().close();
  }
  const bool nothing = std::ranges::all_of(sides, [](const BenchSide& side) { return side.sizes.empty(); });
  if (!status.ok() && nothing) return kFailure;
  return write_reports(options, sides, console) && status.ok() ? exit_code_after_interruption() : kFailure;
}

int run(BenchOptions& options, Console& console) {
  const auto end = [&](const Status& why) {
    console.error(why);
    return kFailure;
  };
  for (const std::string& file : {options.json, options.csv, options.prometheus}) {
    if (file.empty()) continue;
    if (Status status = bench::check_writable(file); !status.ok()) return end(status);
  }
  // Threads and processes that are started from here on inherit it: the target's, if it is here, and then our own.
  if (const auto& cores = options.local ? options.cores.target : options.cores.own; !cores.empty()) {
    if (Status status = bench::use_cores(cores); !status.ok()) return end(status);
  }
  if (!options.server.empty()) {
    return serve_measurements(options.config, options.server, options.once, options.plan.memory, console,
                              options.metrics);
  }
  std::vector<std::string> transports = options.compare;
  if (transports.empty()) transports.push_back(options.config.transport);
  std::optional<LocalEnd> local;
  if (options.local) {
    Result<LocalEnd> started = LocalEnd::start(options.config, fmt::format("{}", fmt::join(transports, ",")),
                                               bench::LocalTarget::measurements(options.plan.memory));
    if (!started) return console.no_engine(started.error());
    local.emplace(*std::move(started));
    options.targets = {local->address()};
    if (!options.cores.own.empty()) {
      if (Status status = bench::use_cores(options.cores.own); !status.ok()) return end(status);
    }
  }
  // Not before the process of the other end is there: CUDA does not survive a fork.
  if (Status there = bench::usable(options.plan.memory); !there.ok()) return console.no_engine(there);
  heed_interruption();
  std::vector<BenchSide> sides;
  for (const std::string& transport : transports) {
    Result<BenchSide> side = connect_side(options, transport, console);
    if (!side) {
      return side.error().code() == Code::kInvalidArgument ? console.no_engine(side.error()) : end(side.error());
    }
    sides.push_back(*std::move(side));
  }
  const Result<std::vector<std::string>> warnings = look_around(sides, options.plan.memory);
  if (!warnings) return end(warnings.error());
  for (const BenchSide& side : sides) {  // what carries it may be less, or more, than the transport's name says
    const bench::LinkFacts& link = side.setting.link;
    if (link.name.empty()) continue;
    const std::string mtu = link.mtu != 0 ? fmt::format(", MTU {}", link.mtu) : "";
    console.line(fmt::format("{} over {}{}", side.setting.transport, link.name, mtu));
  }
  for (const std::string& warning : *warnings) console.line("warning: " + warning);
  return measure(sides, options, *warnings, console);
}

}  // namespace

int bench_command(Words words) {
  if (!words.empty() && std::string_view(words.front()) == "allreduce")
    return bench_allreduce_command(words.subspan(1));
  if (!words.empty() && std::string_view(words.front()) == "matrix") return bench_matrix_command(words.subspan(1));
  if (!words.empty() && std::string_view(words.front()) == "training") return bench_training_command(words.subspan(1));
  if (!words.empty() && std::string_view(words.front()) == "commands") return bench_commands_command(words.subspan(1));
  if (!words.empty() && std::string_view(words.front()) == "trace") return bench_trace_command(words.subspan(1));
  BenchOptions options;
  Args args(
      "bench", "Measures bandwidth or latency between two processes, and verifies the data.",
      "Examples:\n"
      "  fairlead bench bw --transport tcp --op write --size 64K..4M --local\n"
      "  fairlead bench lat --transport verbs:soft0 --op write --size 8 --duration 5 --local --json -\n"
      "  fairlead bench bw --transport verbs:soft0 --packet-io memif --local\n"
      "  fairlead bench --server :7472        on one machine, and on another:\n"
      "  fairlead bench bw gpu7:7472 --op read --size 1M\n"
      "  fairlead bench bw gpu7:7472 --sessions 8 --size 8      small messages a second, by eight threads\n"
      "  fairlead bench bw gpu7:7472 gpu8:7472    one to many; --bidirectional, --initiators: docs/benchmarks.md\n"
      "  fairlead bench bw --compare tcp,verbs:soft0 --local --repeat 5\n"
      "  fairlead bench lat --rate 10000 --local        as users see it who come at their own times\n"
      "  fairlead bench commands --help       of command channels (docs/commands.md)\n"
      "  fairlead bench trace --help          of a program's calls at its device, over command channels\n"
      "  fairlead bench allreduce --help      of sums over several ranks\n"
      "  fairlead bench matrix --help         of all pairs of several ranks\n"
      "  fairlead bench training --help       of steps of data-parallel training\n"
      "What is measured, from where to where: docs/benchmarks.md.");
  add_bench_options(args, &options);
  if (const auto exit = args.parse(words)) return *exit;
  options.config.failover = false;  // a figure that two paths share is none

  Console console("bench", Console::lines_of(options.quiet, options.json == "-" || options.csv == "-"));
  return run(options, console);
}

}  // namespace fairlead::cli
