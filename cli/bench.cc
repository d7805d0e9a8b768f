#include <fmt/format.h>

#include <atomic>
#include <csignal>
#include <optional>

#include "bench/base/file_output.h"
#include "bench/base/sizes.h"
#include "bench/net/initiator.h"
#include "bench/net/local_target.h"
#include "bench/net/local_wire.h"
#include "bench/net/report.h"
#include "bench/net/target.h"
#include "cli/base/args.h"
#include "cli/base/console.h"
#include "cli/base/engine_options.h"
#include "cli/commands.h"
#include "cli/session.h"

namespace fairlead::cli {
namespace {

struct Options {
  EngineConfig config;
  bench::Plan plan;
  std::string kind, target, server, json;
  std::string op = "write", arrival = "notification";
  bool local = false, once = false, no_verify = false;
};

// The first Ctrl-C ends the measurement with what there is, the second one ends the program.
std::atomic<int> g_signal{0};

void stop_measuring(int signal) { g_signal.store(signal); }

void catch_signals() {
  struct sigaction action{};
  action.sa_handler = &stop_measuring;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  for (const int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
}

Status serve(Engine& engine, const Options& options, Console& console) {
  console.line("listening on " + engine.listen_address());
  return bench::Target(&engine).serve(options.once);
}

Status measure(Engine& engine, const Options& options, Console& console) {
  Result<Peer> peer = engine.connect(options.target);
  const Status ready = peer ? peer->wait_ready(options.config.connect_timeout) : peer.error();
  if (!ready.ok()) return Status(ready.code(), fmt::format("cannot reach {}: {}", options.target, ready.message()));
  console.line(peer->explain());
  console.line(bench::table_head(options.plan));
  bench::Link link(&engine, *peer);
  catch_signals();
  std::vector<bench::Sample> samples;
  for (const std::uint64_t size : options.plan.sizes) {
    Result<bench::Sample> sample = bench::measure(link, options.plan, size);
    if (!sample && options.plan.stopped()) break;
    if (!sample)
      return Status(sample.error().code(),
                    fmt::format("size {}: {}", bench::format_size(size), sample.error().message()));
    console.line(bench::table_line(*sample));
    samples.push_back(*std::move(sample));
    if (options.plan.stopped()) break;
  }
  if (options.plan.stopped()) console.line("interrupted: what stands above is all that was measured");
  const std::string transport = peer->transport();
  const bench::Setting setting{transport, device_of(engine, transport), peer->explain(), options.local};
  peer->close();
  if (options.json.empty()) return {};
  return bench::write_text(options.json, bench::report(options.plan, options.config, setting, samples).dump(2) + "\n");
}

int run(Options& options, Console& console) {
  Status status = options.json.empty() ? Status() : bench::check_writable(options.json);
  std::optional<bench::LocalWire> wire;
  std::optional<bench::LocalTarget> local;
  EngineConfig config = options.config;
  if (status.ok() && options.local) {
    Result<bench::LocalWire> made = bench::LocalWire::make(options.config.verbs.packet_io);
    if (!made) return console.no_engine(made.error());
    wire.emplace(*std::move(made));
    config.verbs.packet_io = wire->target();
    Result<bench::LocalTarget> started = bench::LocalTarget::start(config);  // first: an engine has threads, it forks
    if (!started) return console.no_engine(started.error());
    local.emplace(*std::move(started));
    options.target = local->address();
    config.verbs.packet_io = wire->initiator();
  }
  if (status.ok()) {
    config.listen = options.server;
    Result<Engine> engine = Engine::create(config);
    if (!engine) return console.no_engine(engine.error());
    status = options.server.empty() ? measure(*engine, options, console) : serve(*engine, options, console);
  }
  if (!status.ok()) console.error(status);
  constexpr int kBySignal = 128;  // as shells say it
  if (status.ok() && g_signal != 0) return kBySignal + g_signal;
  return status.ok() ? kSuccess : kFailure;
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
    return misplaced(args,
                     {"--op", "--size", "--duration", "--iterations", "--warmup", "--depth", "--footprint",
                      "--no-verify", "--json", "--arrival"},
                     "and --server exclude each other: it is for the end that measures");
  }
  if (options.kind.empty()) return "say what to measure: bw or lat";
  if (options.local == !options.target.empty()) return "give either --local or the HOST:PORT of a bench --server";
  if (args.given("--once")) return "--once is for --server";
  if (args.given("--duration") && args.given("--iterations")) return "--duration and --iterations exclude each other";
  if (options.kind == "lat") {
    const std::string wrong = misplaced(args, {"--depth", "--footprint"}, "is for bw: lat has one operation at a time");
    if (!wrong.empty()) return wrong;
  }
  plan.kind = options.kind == "bw" ? bench::Kind::kBandwidth : bench::Kind::kLatency;
  plan.op = options.op == "write" ? bench::Op::kWrite : options.op == "read" ? bench::Op::kRead : bench::Op::kSend;
  if (args.given("--arrival") && !plan.is_ping_pong_of_writes()) return "--arrival is for lat --op write";
  plan.arrival = options.arrival == "memory" ? bench::Arrival::kMemory : bench::Arrival::kNotification;
  plan.verify = !options.no_verify;
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
  if (!words.empty() && std::string_view(words.front()) == "commands") return bench_commands_command(words.subspan(1));
  if (!words.empty() && std::string_view(words.front()) == "trace") return bench_trace_command(words.subspan(1));
  Options options;
  Args args("bench", "Measures bandwidth or latency between two processes, and verifies the data.",
            "Examples:\n"
            "  fairlead bench bw --transport tcp --op write --size 64K..4M --local\n"
            "  fairlead bench lat --transport verbs:soft0 --op write --size 8 --duration 5 --local --json -\n"
            "  fairlead bench bw --transport verbs:soft0 --packet-io memif --local\n"
            "  fairlead bench --server :7472        on one machine, and on another:\n"
            "  fairlead bench bw gpu7:7472 --op read --size 1M\n"
            "  fairlead bench commands --help       of command channels (docs/commands.md)\n"
            "  fairlead bench trace --help          of a program's calls at its device, over command channels\n"
            "What is measured, from where to where: docs/benchmarks.md.");
  bench::Plan* const plan = &options.plan;
  plan->stop = &g_signal;
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
  args.flag("--no-verify", &options.no_verify, "Do not check the data");
  args.option("--json", "FILE", "Write a report; - for standard output", set_text(&options.json));
  add_engine_options(args, &options.config);
  args.rule([&] { return complete(options, args); });
  if (const auto exit = args.parse(words)) return *exit;
  options.config.failover = false;  // a figure that two paths share is none

  Console console("bench", options.json == "-");
  return run(options, console);
}

}  // namespace fairlead::cli
