#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "bench/base/file_output.h"
#include "bench/base/host.h"
#include "bench/base/report_head.h"
#include "bench/base/sizes.h"
#include "bench/commands/command_rates.h"
#include "bench/trace/busy_executor.h"
#include "bench/trace/measure.h"
#include "bench/trace/sweep.h"
#include "bench/trace/trace_report.h"
#include "cli/base/args.h"
#include "cli/base/console.h"
#include "cli/base/engine_options.h"
#include "cli/commands.h"
#include "cli/measure/interruption.h"
#include "cli/measure/local_end.h"
#include "cli/session.h"

namespace fairlead::cli {
namespace {

struct Options {
  EngineConfig config;
  std::string file, json, svg, where = "thread";
  bool local = false, emulate = false;
  std::vector<double> round_trips = {1e3, 5e3, 20e3, 50e3, 200e3}, bandwidths = {10e9, 25e9, 100e9};
  std::vector<double> copy_bandwidth = {bench::EmulatedDevice{}.copy_bits_per_second};
  double duration = 2;
  std::uint64_t repeat = 0;
};

// ---- emulation

void show(const bench::Trace& trace, const bench::Sweep& sweep, Console& console) {
  console.line(fmt::format("{}: a step here takes {}", trace.name, bench::format_ns(sweep.local_ns)));
  std::string line = "round trip";
  for (const bench::Curve& curve : sweep.curves) {
    line += fmt::format("  {:>10}", bench::format_bandwidth(curve.bits_per_second));
  }
  console.line(line);
  for (std::size_t i = 0; i < sweep.curves.front().points.size(); ++i) {
    line = fmt::format("{:>10}", bench::format_ns(sweep.curves.front().points[i].rtt_ns));
    for (const bench::Curve& curve : sweep.curves) line += fmt::format("  {:>8.2f} %", curve.points[i].overhead * 100);
    console.line(line);
  }
  line = fmt::format("{:<10}", fmt::format("{:.3g} % up to", bench::kBearable * 100));
  for (const bench::Curve& curve : sweep.curves) {
    line += fmt::format("  {:>10}", curve.longest_rtt_ns ? bench::format_ns(*curve.longest_rtt_ns) : "never");
  }
  console.line(line);
}

int emulate(const Options& options, Console& console) {
  Status status;
  for (const std::string& file : {options.json, options.svg}) {
    if (status.ok() && !file.empty()) status = bench::check_writable(file);
  }
  const Result<bench::Trace> trace = status.ok() ? bench::read_trace(options.file) : status;
  if (!trace) {
    console.error(trace.error());
    return kFailure;
  }
  const bench::EmulatedDevice device{options.copy_bandwidth.front()};
  const bench::Sweep sweep = bench::sweep(*trace, options.round_trips, options.bandwidths, device);
  show(*trace, sweep, console);
  if (!options.json.empty()) {
    bench::Json::Object document = bench::report_head("fairlead.bench.trace.emulation/1");
    document.emplace_back("trace", to_json(*trace, options.file));
    document.emplace_back("device_copy_bits_per_second", device.copy_bits_per_second);
    for (auto& member : to_json(sweep)) document.push_back(std::move(member));
    status = bench::write_text(options.json, bench::Json(std::move(document)).dump(2) + "\n");
  }
  if (status.ok() && !options.svg.empty()) status = bench::write_text(options.svg, bench::draw(sweep, *trace));
  if (!status.ok()) console.error(status);
  return status.ok() ? kSuccess : kFailure;
}

// ---- replay

bench::Json report(const Options& options, const Engine& engine, const bench::Trace& trace,
                   const bench::TraceSample& sample) {
  const bool soft = sample.transport.starts_with("verbs:soft");
  bench::Json::Object document = bench::report_head("fairlead.bench.trace/1");
  const auto add = [&document](bench::Json::Object members) {
    for (auto& member : members) document.push_back(std::move(member));
  };
  add({{"host", to_json(bench::host_info())},
       {"local", true},
       {"transport", sample.transport},
       {"device", device_of(engine, sample.transport)},
       {"path", sample.path},
       {"packet_io", soft ? bench::Json(options.config.verbs.packet_io) : bench::Json()},
       {"executor", options.where},
       {"trace", to_json(trace, options.file)}});
  add(to_json(trace, sample));
  document.emplace_back("verified", !sample.remote.empty());
  document.emplace_back("interrupted", interruption() != 0);
  return document;
}

void show(const bench::Trace& trace, const bench::TraceSample& sample, Console& console) {
  const bench::TraceTotals totals = totals_of(trace);
  console.line(sample.path);
  console.line(fmt::format("{}: {} calls on {} streams, {} of them blocking; {} out, {} back", trace.name,
                           trace.records.size(), totals.streams, totals.blocking, bench::format_bytes(totals.bytes_out),
                           bench::format_bytes(totals.bytes_back)));
  if (sample.remote.empty()) return console.line("interrupted before the first replay was over");
  const auto line = [&console](std::string_view where, const bench::TraceSpread& spread) {
    console.line(fmt::format("{:<7} p50 {:.1f} us, {:.1f} to {:.1f}", where, static_cast<double>(spread.p50) / 1e3,
                             static_cast<double>(spread.min) / 1e3, static_cast<double>(spread.max) / 1e3));
  };
  line("here", spread_of(sample.local));
  line("there", spread_of(sample.remote));
  console.line(fmt::format("overhead {:+.1f} %, of {} replays each", overhead_of(sample) * 100, sample.remote.size()));
}

int run(Options& options, Console& console) {
  using Where = command::ServiceConfig::Where;
  const auto end = [&](const Status& why) {
    console.error(why);
    return kFailure;
  };
  Status status = options.json.empty() ? Status() : bench::check_writable(options.json);
  if (!status.ok()) return end(status);
  const Result<bench::Trace> trace = bench::read_trace(options.file);
  if (!trace) return end(trace.error());
  EngineConfig config = options.config;
  // It forks, and an engine has threads.
  Result<LocalEnd> target = LocalEnd::start(config, config.transport, [&options](Engine engine) {
    command::ServiceConfig service;
    service.executors = bench::busy_executors();
    service.where = options.where == "turn" ? Where::kInTurn : Where::kOwnThread;
    return bench::serve_one_session(std::move(engine), std::move(service));
  });
  if (!target) return console.no_engine(target.error());
  Result<Engine> engine = Engine::create(config);
  if (!engine) return console.no_engine(engine.error());

  heed_interruption();
  bench::TracePlan plan;
  plan.duration = std::chrono::nanoseconds(static_cast<std::int64_t>(options.duration * 1e9));
  if (options.repeat != 0) plan.repeat = options.repeat;
  const Result<bench::TraceSample> sample =
      bench::measure_trace(*trace, *engine, target->address(), plan, interruption());
  if (!sample) return end(sample.error());
  show(*trace, *sample, console);
  if (!options.json.empty()) {
    status = bench::write_text(options.json, report(options, *engine, *trace, *sample).dump(2) + "\n");
  }
  if (!status.ok()) return end(status);
  return exit_code_after_interruption();
}

Setter set_list(std::vector<double>* target, Result<std::vector<double>> (*parse)(std::string_view)) {
  return [target, parse](std::string_view text) {
    Result<std::vector<double>> list = parse(text);
    if (!list) return list.error();
    *target = *std::move(list);
    return Status();
  };
}

std::string wrong_words(Options& options, const Args& args) {
  if (options.local && options.emulate) {  // the environment is for many commands: what was said here holds
    options.local = args.given("--local") || !args.given("--emulate");
    options.emulate = args.given("--emulate") || !args.given("--local");
  }
  if (options.local == options.emulate) return "give --local (replay, with the service here) or --emulate";
  const auto misplaced = [&args](std::initializer_list<const char*> flags, std::string_view why) -> std::string {
    for (const char* flag : flags) {
      if (args.given(flag)) return fmt::format("{} {}", flag, why);
    }
    return {};
  };
  if (options.local) {
    std::string wrong = misplaced({"--rtt", "--bandwidth", "--copy-bandwidth", "--svg"}, "is for --emulate");
    if (wrong.empty() && args.given("--duration") && args.given("--repeat")) {
      wrong = "--duration and --repeat exclude each other";
    }
    return wrong;
  }
  if (options.json == "-" && options.svg == "-") return "--json - and --svg - exclude each other";
  if (options.copy_bandwidth.size() != 1) return "--copy-bandwidth is one number";
  return misplaced({"--duration", "--repeat", "--executor", "--transport", "--packet-io"},
                   "is for replays, and nothing is replayed with --emulate");
}

}  // namespace

int bench_trace_command(Words words) {
  Options options;
  Args args(
      "bench trace",
      "Replays what a program asked of its device: here, and over command channels at another process. Or says by "
      "emulation what a network would cost.",
      "Examples:\n"
      "  fairlead bench trace bench/trace/models/gpt2_small_decode.jsonl --transport tcp --local --json -\n"
      "  fairlead bench trace FILE --transport verbs:soft0 --packet-io memif --local --repeat 100\n"
      "  fairlead bench trace FILE --emulate --rtt 1us,5us,20us,50us,200us --bandwidth 10G,100G --svg curves.svg\n"
      "What a trace is, and what is measured: docs/benchmarks.md.");
  args.positional("FILE", "The trace", set_text(&options.file));
  args.flag("--local", &options.local, "Replay: start the service here, as a process of its own on loopback");
  args.option("--duration", "S", "Seconds of replays, half of them here (default 2)",
              set_seconds(&options.duration, 0.01, 86'400));
  args.option("--repeat", "N", "So many replays here and there, instead of --duration",
              set_number(&options.repeat, 1, 1'000'000));
  args.option("--executor", "WHERE",
              "Where commands run: in the service's turn, or on a thread of the session's (default thread)",
              set_choice(&options.where, {"turn", "thread"}));
  args.flag("--emulate", &options.emulate, "Do not replay: compute steps for round trips and bandwidths");
  args.option("--rtt", "LIST", "--emulate: round trips (default 1us,5us,20us,50us,200us)",
              set_list(&options.round_trips, bench::parse_round_trips));
  args.option_by_itself("--bandwidth", "LIST", "--emulate: bits a second each way (default 10G,25G,100G)",
                        set_list(&options.bandwidths, bench::parse_bandwidths));
  args.option("--copy-bandwidth", "B", "--emulate: bits a second between the device and its host (default 200G)",
              set_list(&options.copy_bandwidth, bench::parse_bandwidths));
  args.option("--svg", "FILE", "--emulate: draw the curves; - for standard output", set_text(&options.svg));
  args.option("--json", "FILE", "Write a report; - for standard output", set_text(&options.json));
  add_engine_options(args, &options.config);
  args.rule([&] { return wrong_words(options, args); });
  if (const auto exit = args.parse(words)) return *exit;
  options.config.failover = false;  // a figure that two paths share is none
  Console console("bench", options.json == "-" || options.svg == "-");
  return options.emulate ? emulate(options, console) : run(options, console);
}

}  // namespace fairlead::cli
