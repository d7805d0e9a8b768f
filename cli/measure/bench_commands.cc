#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "bench/base/file_output.h"
#include "bench/base/host.h"
#include "bench/base/report_head.h"
#include "bench/commands/blocking_calls.h"
#include "bench/commands/command_rates.h"
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
  bool local = false, one_session = false;
  double duration = 2;
  std::uint64_t depth = 0;
  std::string json, where = "turn", bulk = "in";
};

bench::Json report(const Options& options, const Engine& engine, const bench::CommandRates& rates,
                   const bench::Histogram& calls, const bench::Histogram& spinning) {
  const bool soft = rates.transport.starts_with("verbs:soft");
  const double call_ns = static_cast<double>(calls.percentile(50));
  return bench::report_head(
      "fairlead.bench.commands/1",
      {{"host", to_json(bench::host_info())},
       {"local", true},
       {"transport", rates.transport},
       {"device", device_of(engine, rates.transport)},
       {"path", rates.path},
       {"packet_io", soft ? bench::Json(options.config.verbs.packet_io) : bench::Json()},
       {"executor", options.where},
       {"command_bytes", std::uint64_t{64}},
       {"depth", options.depth != 0 ? bench::Json(options.depth) : bench::Json()},
       {"commands", rates.commands},
       {"seconds", rates.seconds},
       {"commands_per_second", rates.seconds > 0 ? static_cast<double>(rates.commands) / rates.seconds : 0.0},
       {"command_age_ns", bench::percentiles(rates.ages)},
       {"sync_rtt_ns", bench::percentiles(rates.round_trips)},
       {"sync_rtt_under_bulk_ns", bench::percentiles(rates.bulk_round_trips)},
       {"bulk", options.bulk},
       {"bulk_bytes_per_second", rates.bulk_bytes_per_second},
       {"blocking_call_ns", bench::percentiles(calls)},
       {"spinning_call_ns", bench::percentiles(spinning)},
       {"blocking_calls_per_second", call_ns > 0 ? 1e9 / call_ns : 0.0},
       {"interrupted", interruption() != 0}});
}

int run(Options& options, Console& console) {
  using Where = command::ServiceConfig::Where;
  const Where where = options.where == "turn" ? Where::kInTurn : Where::kOwnThread;
  const std::chrono::nanoseconds duration(static_cast<std::int64_t>(options.duration * 1e9));
  Status status = options.json.empty() ? Status() : bench::check_writable(options.json);
  const auto end = [&](const Status& why) {
    console.error(why);
    return kFailure;
  };
  if (!status.ok()) return end(status);
  // Both fork, and an engine has threads.
  Result<bench::BlockingCalls> blocking = bench::BlockingCalls::start();
  if (!blocking) return end(blocking.error());
  EngineConfig config = options.config;
  std::vector<std::string> program;
  if (options.where == "process") program = {"/proc/self/exe", "bench", "commands", "--one-session"};
  Result<LocalEnd> target = LocalEnd::start(config, config.transport, [&](Engine engine) {
    return bench::serve_commands(std::move(engine), where, program);
  });
  if (!target) return console.no_engine(target.error());

  heed_interruption();
  const Result<bench::Histogram> calls = blocking->measure(duration, interruption());  // before there are others
  const Result<bench::Histogram> spinning = calls ? blocking->measure(duration, interruption(), true) : calls;
  if (!spinning) return end(spinning.error());
  Result<Engine> engine = Engine::create(config);
  if (!engine) return console.no_engine(engine.error());
  const Result<bench::CommandRates> rates = bench::measure_commands(
      *engine, target->address(),
      {duration, options.depth, options.bulk == "in" ? bench::Bulk::kIn : bench::Bulk::kOut}, interruption());
  if (!rates) return end(rates.error());
  const bench::Json document = report(options, *engine, *rates, *calls, *spinning);
  const auto us = [](const bench::Histogram& times, double percent) {
    return static_cast<double>(times.percentile(percent)) / 1e3;
  };
  console.line(rates->path);
  const auto both = [&us](const bench::Histogram& times) {
    return times.count() == 0 ? "not measured"
                              : fmt::format("p50 {:.1f} us, p99 {:.1f} us", us(times, 50), us(times, 99));
  };
  const double seconds = std::max(rates->seconds, 1e-9);
  console.line(fmt::format("{:.3f} million commands/s of 64 bytes, each known to be done after {}",
                           static_cast<double>(rates->commands) / seconds / 1e6, both(rates->ages)));
  console.line(fmt::format("a round trip {}; {} while {:.2f} GB/s are copied {}", both(rates->round_trips),
                           both(rates->bulk_round_trips), rates->bulk_bytes_per_second / 1e9, options.bulk));
  console.line(
      fmt::format("blocking calls over a TCP connection: {}; where both ends spin {}", both(*calls), both(*spinning)));
  if (interruption() != 0) console.line("interrupted: what stands above is all that was measured");
  if (!options.json.empty()) status = bench::write_text(options.json, document.dump(2) + "\n");
  if (!status.ok()) return end(status);
  return exit_code_after_interruption();
}

}  // namespace

int bench_commands_command(Words words) {
  Options options;
  Args args("bench commands",
            "Measures command channels between two processes: commands per second, and the round trip of one, alone "
            "and under "
            "bulk.",
            "Examples:\n"
            "  fairlead bench commands --transport tcp --local --duration 5 --json -\n"
            "  fairlead bench commands --transport verbs:soft0 --packet-io memif --local\n"
            "Beside it, in the same run, calls that block over a TCP connection. See docs/commands.md.");
  args.flag("--local", &options.local, "Start the service here, as a process of its own on loopback (needed)");
  args.option("--duration", "S", "Seconds for each figure (default 2)", set_seconds(&options.duration, 0.01, 86'400));
  args.option("--depth", "N", "Commands under way at most, 64 to 65536 (default: the service's credits, 2048)",
              set_number(&options.depth, 64, 65536));
  args.option("--executor", "WHERE",
              "Where commands run: in the service's turn, on a thread of the session's, or in a process of its own "
              "(default turn)",
              set_choice(&options.where, {"turn", "thread", "process"}));
  args.option("--bulk", "WAY", "Whether bulk is copied in or out (default in)",
              set_choice(&options.bulk, {"in", "out"}));
  args.flag("--one-session", &options.one_session, "What such a process is started with; it is of no other use");
  args.option("--json", "FILE", "Write a report; - for standard output", set_text(&options.json));
  add_engine_options(args, &options.config);
  args.rule([&] {
    return options.local || options.one_session ? std::string() : "give --local: the service is started here";
  });
  if (const auto exit = args.parse(words)) return *exit;
  if (options.one_session) return command::serve_session(bench::bench_executors());
  options.config.failover = false;  // a figure that two paths share is none
  Console console("bench", options.json == "-");
  return run(options, console);
}

}  // namespace fairlead::cli
