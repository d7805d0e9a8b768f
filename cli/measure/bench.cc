#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <thread>

#include "base/words.h"
#include "bench/base/file_output.h"
#include "bench/base/host_load.h"
#include "bench/base/sizes.h"
#include "bench/net/end_facts.h"
#include "bench/net/initiator.h"
#include "bench/net/report.h"
#include "cli/base/args.h"
#include "cli/base/console.h"
#include "cli/base/engine_options.h"
#include "cli/base/ticker.h"
#include "cli/commands.h"
#include "cli/measure/interruption.h"
#include "cli/measure/local_end.h"
#include "cli/measure/prometheus_file.h"
#include "cli/measure/result_metrics.h"
#include "cli/session.h"
#include "fairlead/metrics.h"

namespace fairlead::cli {
namespace {

struct Options {
  EngineConfig config;
  bench::Plan plan;
  std::string kind, target, server, json, csv, metrics, prometheus;
  std::string op = "write", arrival = "notification";
  std::vector<std::string> compare;  // transports, in place of --transport
  double wait = 0;                   // seconds, for a target that is not there yet
  bool local = false, once = false, no_verify = false;
};

// A session over one transport, and what was measured over it.
struct Side {
  std::unique_ptr<Engine> engine;
  std::optional<Metrics> metrics = {};
  std::unique_ptr<bench::Link> link = {};
  bench::Setting setting = {};
  std::vector<bench::Measured> sizes = {};
};

// A target may still be starting: each attempt that fails is followed by another while there is time.
Result<Peer> reach(Engine& engine, const Options& options, Console& console) {
  constexpr std::chrono::milliseconds kPause{200};
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(options.wait);
  for (bool told = false;; told = true) {
    Result<Peer> peer = engine.connect(options.target);
    const Status ready = peer ? peer->wait_ready(options.config.connect_timeout) : peer.error();
    if (ready.ok()) return peer;
    if (std::chrono::steady_clock::now() >= end || interruption() != 0) {
      return Status(ready.code(), fmt::format("cannot reach {}: {}", options.target, ready.message()));
    }
    if (!told)
      console.line(fmt::format("waiting for {} for up to {:g} s: {}", options.target, options.wait, ready.message()));
    std::this_thread::sleep_for(kPause);
  }
}

Result<Side> connect(const Options& options, const std::string& transport, Console& console) {
  EngineConfig config = options.config;
  config.transport = transport;
  Result<Engine> engine = Engine::create(config);
  if (!engine) return engine.error();
  Side side;
  side.engine = std::make_unique<Engine>(*std::move(engine));
  if (!options.metrics.empty()) {
    Result<Metrics> served = Metrics::serve(*side.engine, {.listen = options.metrics, .service = "bench"});
    if (!served) return served.error();
    side.metrics.emplace(*std::move(served));
    console.line(fmt::format("metrics on http://{}/metrics", side.metrics->address()));
  }
  Result<Peer> peer = reach(*side.engine, options, console);
  if (!peer) return peer.error();
  side.link = std::make_unique<bench::Link>(side.engine.get(), *peer);
  side.setting.transport = peer->transport();
  side.setting.device = device_of(*side.engine, side.setting.transport);
  side.setting.path = peer->explain();
  side.setting.local = options.local;
  console.line(side.setting.path);
  return side;
}

// One size once, over one of the sides.
Status measure_once(Side& side, const bench::Plan& plan, std::uint64_t size, bench::Measured& measured,
                    Console& console) {
  Result<bench::Sample> sample = [&] {
    const double seconds = plan.iterations == 0 && plan.interval == 0 ? plan.duration : 0;
    const Ticker ticker(console, bench::format_size(size), seconds);
    return bench::measure(*side.link, plan, size);
  }();
  if (sample) {
    measured.add(*sample);
    return {};
  }
  if (plan.stopped()) return {};
  return {sample.error().code(), fmt::format("size {}: {}", bench::format_size(size), sample.error().message())};
}

// All sides in turn, so that none has the quieter half of the machine's time; another begins each round.
Status measure_size(std::vector<Side>& sides, const bench::Plan& plan, std::uint64_t size, Console& console) {
  std::vector<bench::Measured> measured(sides.size());
  for (std::uint64_t round = 0; round < plan.repeat && !plan.stopped(); ++round) {
    for (std::size_t i = 0; i < sides.size() && !plan.stopped(); ++i) {
      const std::size_t turn = (round + i) % sides.size();
      if (Status status = measure_once(sides[turn], plan, size, measured[turn], console); !status.ok()) return status;
    }
  }
  for (std::size_t i = 0; i < sides.size(); ++i) {
    if (measured[i].bytes_per_second.empty()) continue;
    const std::string name = sides.size() > 1 ? "  " + sides[i].setting.transport : "";
    console.line(bench::table_line(measured[i].sample) + name);
    if (measured[i].bytes_per_second.size() > 1) console.line(bench::repeats_line(measured[i]) + name);
    sides[i].sizes.push_back(std::move(measured[i]));
  }
  return {};
}

Status write_reports(const Options& options, const std::vector<Side>& sides) {
  if (!options.json.empty()) {
    bench::Json::Array reports;
    for (const Side& side : sides)
      reports.push_back(bench::report(options.plan, options.config, side.setting, side.sizes));
    const bench::Json document = options.compare.empty()
                                     ? reports.front()
                                     : bench::Json(bench::Json::Object{{"schema", "fairlead.bench.compare/1"},
                                                                       {"transports", std::move(reports)}});
    if (Status status = bench::write_text(options.json, document.dump(2) + "\n"); !status.ok()) return status;
  }
  std::vector<MeasuredSide> measured;
  for (const Side& side : sides) measured.push_back({&side.setting, side.sizes});
  if (Status status = write_prometheus_file(options.prometheus, result_metrics(options.plan, measured)); !status.ok())
    return status;
  if (options.csv.empty()) return {};
  std::string lines = bench::csv_head();
  for (const Side& side : sides) {
    for (const bench::Measured& size : side.sizes) lines += bench::csv_line(options.plan, side.setting, size);
  }
  return bench::write_text(options.csv, lines);
}

Status measure(std::vector<Side>& sides, const Options& options, const std::vector<std::string>& warnings,
               Console& console) {
  console.line(bench::table_head(options.plan));
  for (const std::uint64_t size : options.plan.sizes) {
    if (options.plan.stopped()) break;
    bench::Plan plan = options.plan;
    plan.tell = [&](const bench::Interval& interval) { console.line(bench::interval_line(interval, size)); };
    if (Status status = measure_size(sides, plan, size, console); !status.ok()) return status;
  }
  if (options.plan.stopped()) console.line("interrupted: what stands above is all that was measured");
  for (Side& side : sides) {
    side.setting.warnings = warnings;
    if (options.json.empty()) continue;
    const Result<bench::Json> answer = side.link->ask("facts");
    const Result<bench::EndFacts> facts = answer ? bench::end_facts(*answer) : answer.error();
    if (facts) side.setting.target = facts->host;  // a target of an older version does not say
  }
  for (Side& side : sides) side.link->peer().close();
  return write_reports(options, sides);
}

int run(Options& options, Console& console) {
  const auto end = [&](const Status& why) {
    console.error(why);
    return kFailure;
  };
  for (const std::string& file : {options.json, options.csv, options.prometheus}) {
    if (file.empty()) continue;
    if (Status status = bench::check_writable(file); !status.ok()) return end(status);
  }
  if (!options.server.empty()) {
    return serve_measurements(options.config, options.server, options.once, console, options.metrics);
  }
  const std::vector<std::string> warnings = bench::busy_warnings();
  for (const std::string& warning : warnings) console.line("warning: " + warning);
  std::vector<std::string> transports = options.compare;
  if (transports.empty()) transports.push_back(options.config.transport);
  std::optional<LocalEnd> local;
  if (options.local) {
    Result<LocalEnd> started = LocalEnd::start(options.config, fmt::format("{}", fmt::join(transports, ",")));
    if (!started) return console.no_engine(started.error());
    local.emplace(*std::move(started));
    options.target = local->address();
  }
  heed_interruption();
  std::vector<Side> sides;
  for (const std::string& transport : transports) {
    Result<Side> side = connect(options, transport, console);
    if (!side) {
      return side.error().code() == Code::kInvalidArgument ? console.no_engine(side.error()) : end(side.error());
    }
    sides.push_back(*std::move(side));
  }
  const Status status = measure(sides, options, warnings, console);
  return status.ok() ? exit_code_after_interruption() : end(status);
}

Setter set_transports(std::vector<std::string>* target) {
  return [target](std::string_view text) {
    *target = words_of(text);
    const std::set<std::string> different(target->begin(), target->end());
    return target->size() >= 2 && different.size() == target->size()
               ? Status()
               : Status(Code::kInvalidArgument,
                        fmt::format("'{}' is not legal here (legal: two or more transports, such as "
                                    "tcp,verbs:soft0)",
                                    text));
  };
}

// The flags of one end of a measurement, which the other does not heed.
std::string misplaced(const Args& args, std::initializer_list<const char*> flags, std::string_view why) {
  for (const char* flag : flags) {
    if (args.given(flag)) return fmt::format("{} {}", flag, why);
  }
  return "";
}

// The rules that span several flags. Empty: all is well.
std::string complete(Options& options, const Args& args) {
  bench::Plan& plan = options.plan;
  if (!options.server.empty()) {
    if (options.local) return "--server and --local exclude each other";
    if (!options.kind.empty()) {
      return fmt::format("--server and {} exclude each other: the end that measures says what is measured",
                         options.kind);
    }
    return misplaced(
        args,
        {"--op", "--size", "--duration", "--iterations", "--warmup", "--depth", "--footprint", "--no-verify", "--json",
         "--arrival", "--rate", "--repeat", "--interval", "--csv", "--compare", "--wait", "--prometheus-file"},
        "and --server exclude each other: it is for the end that measures");
  }
  if (options.kind.empty()) return "say what to measure: bw or lat";
  if (options.local == !options.target.empty()) return "give either --local or the HOST:PORT of a bench --server";
  if (args.given("--once")) return "--once is for --server";
  if (args.given("--duration") && args.given("--iterations")) return "--duration and --iterations exclude each other";
  if (args.given("--wait") && options.local) return "--wait is for a bench --server elsewhere";
  if (!options.compare.empty() && args.given("--transport")) return "--transport and --compare exclude each other";
  if (options.json == "-" && options.csv == "-") return "--json - and --csv - exclude each other";
  if (options.kind == "lat") {
    const std::string wrong = misplaced(args, {"--depth", "--footprint"}, "is for bw: lat has one operation at a time");
    if (!wrong.empty()) return wrong;
  }
  plan.kind = options.kind == "bw" ? bench::Kind::kBandwidth : bench::Kind::kLatency;
  plan.op = options.op == "write" ? bench::Op::kWrite : options.op == "read" ? bench::Op::kRead : bench::Op::kSend;
  if (args.given("--arrival") && !plan.is_ping_pong_of_writes()) return "--arrival is for lat --op write";
  plan.arrival = options.arrival == "memory" ? bench::Arrival::kMemory : bench::Arrival::kNotification;
  plan.verify = !options.no_verify;
  if (!options.compare.empty() && !args.given("--repeat")) plan.repeat = 3;
  if (plan.sizes.empty()) plan.sizes = {plan.kind == bench::Kind::kBandwidth ? std::uint64_t{1} << 20 : 8};
  for (const std::uint64_t size : plan.sizes) {
    if (plan.op == bench::Op::kSend && size > options.config.max_message_bytes) {
      return fmt::format("--size {}: a message has at most {}", bench::format_size(size),
                         bench::format_size(options.config.max_message_bytes));
    }
  }
  return "";
}

}  // namespace

int bench_command(Words words) {
  if (!words.empty() && std::string_view(words.front()) == "allreduce")
    return bench_allreduce_command(words.subspan(1));
  if (!words.empty() && std::string_view(words.front()) == "matrix") return bench_matrix_command(words.subspan(1));
  if (!words.empty() && std::string_view(words.front()) == "training") return bench_training_command(words.subspan(1));
  if (!words.empty() && std::string_view(words.front()) == "commands") return bench_commands_command(words.subspan(1));
  if (!words.empty() && std::string_view(words.front()) == "trace") return bench_trace_command(words.subspan(1));
  Options options;
  bool quiet = false;
  Args args("bench", "Measures bandwidth or latency between two processes, and verifies the data.",
            "Examples:\n"
            "  fairlead bench bw --transport tcp --op write --size 64K..4M --local\n"
            "  fairlead bench lat --transport verbs:soft0 --op write --size 8 --duration 5 --local --json -\n"
            "  fairlead bench bw --transport verbs:soft0 --packet-io memif --local\n"
            "  fairlead bench --server :7472        on one machine, and on another:\n"
            "  fairlead bench bw gpu7:7472 --op read --size 1M\n"
            "  fairlead bench bw --compare tcp,verbs:soft0 --local --repeat 5\n"
            "  fairlead bench lat --rate 10000 --local        as users see it who come at their own times\n"
            "  fairlead bench commands --help       of command channels (docs/commands.md)\n"
            "  fairlead bench trace --help          of a program's calls at its device, over command channels\n"
            "  fairlead bench allreduce --help      of sums over several ranks\n"
            "  fairlead bench matrix --help         of all pairs of several ranks\n"
            "  fairlead bench training --help       of steps of data-parallel training\n"
            "What is measured, from where to where: docs/benchmarks.md.");
  bench::Plan* const plan = &options.plan;
  plan->stop = &interruption();
  args.positional("bw|lat", "What to measure", set_choice(&options.kind, {"bw", "lat"}), false);
  args.positional("HOST:PORT", "A bench --server", set_places(&options.target), false);
  args.option("--server", "HOST:PORT", "Be the passive end, for `bench bw|lat HOST:PORT` elsewhere",
              set_host_port(&options.server, false));
  args.flag("--once", &options.once, "With --server: end when the first initiator has gone");
  args.flag("--local", &options.local, "Start the passive end here, as a process of its own on loopback");
  args.option("--op", "OP", "write, read or send (default write)", set_choice(&options.op, {"write", "read", "send"}));
  args.option("--arrival", "HOW",
              "lat --op write: how an end learns of a write, by its notification or by looking at the memory, as "
              "ib_write_lat does (default notification)",
              set_choice(&options.arrival, {"notification", "memory"}));
  args.option("--size", "LIST", "Bytes: 8,4K,1M or ranges that double, 8..1M (default 1M for bw, 8 for lat)",
              [plan](std::string_view text) {
                auto sizes = bench::parse_size_list(text, bench::kMaxSize);
                if (!sizes) return sizes.error();
                plan->sizes = *std::move(sizes);
                return Status();
              });
  args.option("--duration", "S", "Seconds per size (default 2)", set_seconds(&plan->duration, 0.01, 86'400));
  args.option("--iterations", "N", "Operations per size, instead of --duration",
              set_number(&plan->iterations, 1, 1'000'000'000'000));
  args.option("--warmup", "N", "Operations before the clock starts (default 100)",
              set_number(&plan->warmup, 0, 1'000'000));
  args.option("--depth", "N", "bw: operations in flight (default 16)", set_number(&plan->depth, 1, bench::kMaxDepth));
  args.option("--footprint", "SIZE", "bw: memory at each end that operations go round (default 4M)",
              set_size(&plan->footprint, 1, bench::kMaxBuffer));
  args.option(
      "--rate", "N",
      "Operations a second, each due at its time whatever became of those before: latency is from then (default: as "
      "fast as they complete)",
      set_seconds(&plan->rate, 0.1, 1e9));
  args.option("--repeat", "N",
              "Measure each size so often: mean, spread and a 95 % interval (default 1; with --compare 3)",
              set_number(&plan->repeat, 1, static_cast<std::int64_t>(bench::kMaxRepeats)));
  args.option("--interval", "S", "Say how far it is every S seconds", set_seconds(&plan->interval, 0.01, 86'400));
  args.option(
      "--compare", "LIST",
      "Transports, commas between, in place of --transport: each size over each in turn. For a ratio and how sure it "
      "is: fairlead gain",
      set_transports(&options.compare));
  args.option("--wait", "S", "Keep trying for so long to reach a target that is not there yet (default 0)",
              set_seconds(&options.wait, 0, 86'400));
  args.flag("--no-verify", &options.no_verify, "Do not check the data");
  args.option("--json", "FILE", "Write a report; - for standard output", set_text(&options.json));
  args.option("--csv", "FILE", "Write a line per size; - for standard output", set_text(&options.csv));
  add_prometheus_file(args, &options.prometheus);
  args.option("--metrics", "HOST:PORT",
              "Serve /metrics of this end there meanwhile; of HOST:PORT-LAST the first port that is free (default: not "
              "at all)",
              set_text(&options.metrics));
  args.flag("--quiet", &quiet, "Say nothing but what goes wrong: the report of --json has the figures");
  add_engine_options(args, &options.config);
  args.rule([&] { return complete(options, args); });
  if (const auto exit = args.parse(words)) return *exit;
  options.config.failover = false;  // a figure that two paths share is none

  Console console("bench", Console::lines_of(quiet, options.json == "-" || options.csv == "-"));
  return run(options, console);
}

}  // namespace fairlead::cli
