#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "bench/base/file_output.h"
#include "bench/base/host_load.h"
#include "bench/base/sizes.h"
#include "bench/gain/report.h"
#include "bench/memory/end_memory.h"
#include "cli/base/args.h"
#include "cli/base/console.h"
#include "cli/base/engine_options.h"
#include "cli/base/unreachable.h"
#include "cli/commands.h"
#include "cli/measure/gain_metrics.h"
#include "cli/measure/interruption.h"
#include "cli/measure/local_end.h"
#include "cli/measure/memory_option.h"
#include "cli/measure/prometheus_file.h"
#include "cli/measure/written.h"
#include "cli/session.h"

namespace fairlead::cli {
namespace {

constexpr std::uint64_t kLongest = 5 * 60;  // seconds that a comparison should take at most

struct Options {
  EngineConfig config;
  bench::GainPlan plan;
  std::string baseline = "tcp", candidate = "verbs", kind = "all", primary = "bandwidth", op = "write";
  std::string target, server, json, html, prometheus;
  std::uint64_t socket_buffer = 0;
  bool local = false, once = false, no_verify = false, no_control = false;
};

// The sides' engines, and of each a session that is there from the beginning to the end and says what it is. Where both
// sides are of one transport they share an engine: an address of softroce's has one device.
class Sides {
 public:
  static Result<Sides> connect(const Options& options) {
    Sides sides;
    Result<Engine> first = engine_of(options, options.baseline);
    if (!first) return first.error();
    sides.engines_.push_back(*std::move(first));
    if (options.baseline != options.candidate) {
      Result<Engine> second = engine_of(options, options.candidate);
      if (!second) return second.error();
      sides.engines_.push_back(*std::move(second));
    }
    sides.target_ = options.target;
    sides.memory_ = options.plan.load.memory;
    for (const bench::Side side : {bench::Side::kBaseline, bench::Side::kCandidate}) {
      Result<std::unique_ptr<bench::Link>> link = sides.connect(side);
      if (!link) return link.error();
      sides.links_.push_back(*std::move(link));
    }
    return sides;
  }

  /// One more session of that side. Errors: also that it came up over another transport than the first.
  Result<std::unique_ptr<bench::Link>> connect(bench::Side side) {
    const bool candidate = side == bench::Side::kCandidate;
    Engine& engine = candidate ? engines_.back() : engines_.front();
    Result<Peer> peer = engine.connect(target_);
    const Status ready = peer ? peer->wait_ready(engine.config().connect_timeout) : peer.error();
    if (!ready.ok()) {
      return unreachable(fmt::format("{} over {}", target_, engine.config().transport), ready,
                         "fairlead gain --server");
    }
    if (links_.size() == 2) {
      const std::string first = links_[candidate ? 1 : 0]->peer().transport();
      if (peer->transport() != first) {
        return Status(Code::kUnavailable, fmt::format("a session with {} came up over {}, and the first over {}",
                                                      target_, peer->transport(), first));
      }
    }
    return std::make_unique<bench::Link>(&engine, *std::move(peer));
  }

  Result<bench::SideFacts> facts(std::size_t side) {
    bench::Link& link = *links_[side];
    const Result<Json> answer = link.ask("facts");
    const Result<bench::EndFacts> target = answer ? bench::end_facts(*answer) : answer.error();
    if (!target) {
      return Status(target.error().code(),
                    fmt::format("{} does not say what it is, as a `fairlead gain --server` of this version does: {}",
                                link.peer().address(), target.error().message()));
    }
    const EngineConfig& config = link.engine().config();
    return bench::side_facts(link.peer(), device_of(link.engine(), link.peer().transport()), config,
                             bench::own_facts(config, memory_), *target);
  }

  void close() {
    for (const auto& link : links_) link->peer().close();
  }

 private:
  using Json = bench::Json;
  Sides() = default;

  static Result<Engine> engine_of(const Options& options, const std::string& transport) {
    EngineConfig config = options.config;
    config.transport = transport;
    return Engine::create(config);
  }

  std::vector<Engine> engines_;  // not moved once links point to them
  std::string target_;
  bench::Place memory_;
  std::vector<std::unique_ptr<bench::Link>> links_;
};

// Each that was asked for, also where another cannot be written. False: one could not, which was told.
bool write_reports(const Options& options, const bench::GainReport& report, Console& console) {
  std::vector<Status> written;
  if (!options.json.empty()) written.push_back(bench::write_text(options.json, bench::to_json(report).dump() + "\n"));
  if (!options.html.empty()) written.push_back(bench::write_text(options.html, bench::page_of(report)));
  written.push_back(write_prometheus_file(options.prometheus, gain_metrics(report)));
  return all_written(written, console);
}

// False: it went wrong, and was told; what was complete by then is written all the same.
bool compare(Sides& sides, const Options& options, std::vector<std::string> warnings, Console& console) {
  bench::GainReport report;
  report.plan = options.plan;
  report.warnings = std::move(warnings);
  for (const auto& [side, facts] : {std::pair{0U, &report.baseline}, std::pair{1U, &report.candidate}}) {
    Result<bench::SideFacts> found = sides.facts(side);
    if (!found) {
      console.error(found.error());
      return false;
    }
    *facts = *std::move(found);
    console.line(fmt::format("{}: {}", side == 0 ? "baseline" : "candidate", facts->path));
  }
  bench::GainPlan plan = options.plan;
  plan.one_host = on_one_host(report.baseline);
  const double seconds = bench::expected_seconds(options.plan);
  console.line(fmt::format("primary: {} at {}; this takes about {:.0f} s", name_of(options.plan.primary),
                           bench::format_size(options.plan.primary_size), seconds));
  heed_interruption();
  std::vector<bench::Series> all;
  const Status status =
      bench::compare_transports([&](bench::Side side) { return sides.connect(side); }, plan,
                                [&](const bench::Series& series) {
                                  console.line(fmt::format("measured {} of {}: {} quads", to_string(series.kind),
                                                           bench::format_size(series.size), series.quads.size()));
                                  all.push_back(series);
                                });
  if (!status.ok()) console.error(status);
  if (!status.ok() && all.empty()) return false;
  report.interrupted = interruption() != 0 || !status.ok();
  if (!status.ok()) report.error = status.to_string();
  report.verified = !report.interrupted && !all.empty() &&
                    std::ranges::all_of(all, [](const auto& series) { return series.verified; });
  report.analysis = bench::analyse(all, bench::terms_of(report.baseline, report.candidate, options.plan), options.plan,
                                   report.interrupted);
  for (const std::string& line : bench::lines_of(report)) console.line(line);
  return write_reports(options, report, console) && status.ok();
}

int measure(Options& options, Console& console) {
  const auto end = [&](const Status& why) {
    console.error(why);
    return kFailure;
  };
  for (const std::string& file : {options.json, options.html, options.prometheus}) {
    if (file.empty()) continue;
    if (Status status = bench::check_writable(file); !status.ok()) return end(status);
  }
  std::vector<std::string> warnings = bench::busy_warnings();
  for (const std::string& warning : warnings) console.line("warning: " + warning);
  std::optional<LocalEnd> local;
  if (options.local) {
    Result<LocalEnd> started = LocalEnd::start(
        options.config,
        options.baseline == options.candidate ? options.baseline : options.baseline + "," + options.candidate,
        bench::LocalTarget::measurements(options.plan.load.memory));
    if (!started) return console.no_engine(started.error());
    local.emplace(*std::move(started));
    options.target = local->address();
  }
  // Not before the process of the other end is there: CUDA does not survive a fork.
  if (Status there = bench::usable(options.plan.load.memory); !there.ok()) return console.no_engine(there);
  Result<Sides> sides = Sides::connect(options);
  if (!sides)
    return sides.error().code() == Code::kInvalidArgument ? console.no_engine(sides.error()) : end(sides.error());
  if (!compare(*sides, options, std::move(warnings), console)) return kFailure;
  sides->close();
  return exit_code_after_interruption();
}

// The rules that span several flags. Empty: all is well.
std::string complete(Options& options, const Args& args) {
  bench::GainPlan& plan = options.plan;
  if (!options.server.empty()) {
    for (const char* flag : {"--local",        "--baseline",  "--candidate", "--sizes",     "--quads",
                             "--sessions",     "--block",     "--seed",      "--kind",      "--primary",
                             "--primary-size", "--op",        "--depth",     "--footprint", "--slow-candidate",
                             "--no-control",   "--no-verify", "--json",      "--html",      "--prometheus-file"}) {
      if (args.given(flag))
        return fmt::format("{} and --server exclude each other: it is for the end that measures", flag);
    }
    return options.target.empty() ? "" : "--server and HOST:PORT exclude each other";
  }
  if (options.local == !options.target.empty()) return "give either --local or the HOST:PORT of a gain --server";
  if (args.given("--once")) return "--once is for --server";
  if (args.given("--transport")) return "--transport is for --server; say --baseline and --candidate";
  plan.load.op = options.op == "write" ? bench::Op::kWrite : options.op == "read" ? bench::Op::kRead : bench::Op::kSend;
  plan.load.verify = !options.no_verify;
  plan.control = !options.no_control;
  if (options.kind != "all") plan.kinds = {options.kind == "bw" ? bench::Kind::kBandwidth : bench::Kind::kLatency};
  plan.primary = options.primary == "bandwidth" ? bench::Metric::kBandwidth
                 : options.primary == "cpu"     ? bench::Metric::kBytesPerCpuSecond
                                                : bench::Metric::kLatencyP50;
  if (std::ranges::find(plan.kinds, kind_of(plan.primary)) == plan.kinds.end()) {
    return fmt::format("--primary {} is not measured with --kind {}", options.primary, options.kind);
  }
  if (plan.primary_size == 0) plan.primary_size = plan.load.sizes.back();
  if (std::ranges::find(plan.load.sizes, plan.primary_size) == plan.load.sizes.end()) {
    return fmt::format("--primary-size {} is none of --sizes", bench::format_size(plan.primary_size));
  }
  if (std::string wrong = misplaced_memory(plan.load); !wrong.empty()) return wrong;
  for (const std::uint64_t size : plan.load.sizes) {
    if (plan.load.op == bench::Op::kSend && size > options.config.max_message_bytes) {
      return fmt::format("--sizes {}: a message has at most {}", bench::format_size(size),
                         bench::format_size(options.config.max_message_bytes));
    }
  }
  if (options.json == "-" && options.html == "-") return "--json - and --html - exclude each other";
  const double seconds = bench::expected_seconds(plan);
  if (seconds > kLongest) {
    return fmt::format(
        "this would take {:.0f} s, and at most {} are sensible: fewer --sizes, --quads, a shorter --block, or one "
        "--kind",
        seconds, kLongest);
  }
  return "";
}

void add_options(Args& args, Options& options) {
  bench::GainPlan* const plan = &options.plan;
  args.positional("HOST:PORT", "A gain --server or bench --server", set_places(&options.target), false);
  args.option("--server", "HOST:PORT", "Be the passive end, for `gain HOST:PORT` elsewhere",
              set_host_port(&options.server, false));
  args.flag("--once", &options.once, "With --server: end when the first initiator has gone");
  args.flag("--local", &options.local, "Start the passive end here, as a process of its own on loopback");
  args.option("--baseline", "T", "What is compared with: a transport, as of --transport (default tcp)",
              set_transport(&options.baseline));
  args.option("--candidate", "T", "What is compared (default verbs: the best device)",
              set_transport(&options.candidate));
  args.option("--sizes,--size", "LIST", "Bytes of an operation: 8,4K,1M or ranges that double (default 4K,64K,1M)",
              [plan](std::string_view text) {
                auto sizes = bench::parse_size_list(text, bench::kMaxSize);
                if (!sizes) return sizes.error();
                plan->load.sizes = *std::move(sizes);
                return Status();
              });
  args.option("--kind", "K", "bw (bandwidth and processor time), lat (latency) or all (default all)",
              set_choice(&options.kind, {"all", "bw", "lat"}));
  args.option("--op", "OP", "write, read or send (default write)", set_choice(&options.op, {"write", "read", "send"}));
  args.option(
      "--primary", "METRIC",
      "What the verdict is about, said beforehand: bandwidth, cpu (bytes per processor second) or latency (p50; "
      "default bandwidth)",
      set_choice(&options.primary, {"bandwidth", "cpu", "latency"}));
  args.option("--primary-size", "SIZE", "And at which of the sizes (default: the last)",
              set_size(&plan->primary_size, 1, bench::kMaxSize));
  args.option("--quads", "N",
              fmt::format("Quads of each size and kind (default {}; below {} nothing is claimed)", plan->quads,
                          bench::kFewestQuads),
              set_number(&plan->quads, 1, 10'000));
  args.option(
      "--sessions", "N",
      "Pairs of sessions that the quads of each size and kind are spread over, for links where one takes long to "
      "begin (default: as many as quads)",
      set_number(&plan->sessions, 1, 10'000));
  args.option("--block", "S", "Seconds of a block, of which a quad has four (default 0.1)",
              set_seconds(&plan->block, 0.01, 2));
  args.option("--seed", "N", "Of the random order, and of the bootstrap (default 1)",
              set_number(&plan->seed, 0, 1'000'000'000));
  args.option("--depth", "N", "bw: operations under way (default 16)",
              set_number(&plan->load.depth, 1, bench::kMaxDepth));
  args.option("--footprint", "SIZE", "bw: memory at each end that operations go round (default 4M)",
              set_size(&plan->load.footprint, 1, bench::kMaxBuffer));
  add_memory(args, &plan->load.memory);
  args.option("--socket-buffer", "SIZE", "Of tcp's sockets, at both ends (default: the kernel's choice)",
              set_size(&options.socket_buffer, 4096, std::uint64_t{1} << 30));
  args.flag("--no-control", &options.no_control, "Leave the baseline beside itself out");
  args.flag("--no-verify", &options.no_verify, "Do not check the data");
  args.option(
      "--slow-candidate", "PART",
      "A check of the method: the candidate rests for this part of the time that it ran, 0.1 for 10 % (default 0)",
      set_decimal(&plan->slow_candidate, "a part", 0, 10));
  args.option("--json", "FILE", "Write a report; - for standard output", set_text(&options.json));
  args.option("--html", "FILE", "Write a page that needs no other file; - for standard output",
              set_text(&options.html));
  add_prometheus_file(args, &options.prometheus);
}

/// Whether it is steps of training that are compared: --training, or its like in the environment.
bool compares_training(Words words) {
  const auto names_training = [](std::string_view word) {
    return word == "--training" || word.starts_with("--training=");
  };
  const char* const named = std::getenv("FAIRLEAD_TRAINING");
  return std::ranges::any_of(words, names_training) || (named != nullptr && *named != '\0');
}

}  // namespace

int gain_command(Words words) {
  if (compares_training(words)) return gain_training_command(words);
  Options options;
  options.plan.load.sizes = {std::uint64_t{4} << 10, std::uint64_t{64} << 10, std::uint64_t{1} << 20};
  options.plan.load.footprint = std::uint64_t{4} << 20;  // several buffers, as programs have
  options.plan.load.stop = &interruption();
  Args args(
      "gain",
      "Compares two transports between the same two hosts: blocks of both in turn, a ratio with its interval, and a "
      "verdict where terms were equal.",
      "Examples:\n"
      "  fairlead gain --server :7473           on one machine, and on another:\n"
      "  fairlead gain gpu7:7473 --baseline tcp --candidate verbs --json gain.json --html gain.html\n"
      "  fairlead gain --local --candidate verbs:soft0 --sizes 64K,1M --kind bw\n"
      "  fairlead gain --local --candidate tcp      a side beside itself: what the machine makes of no difference\n"
      "  fairlead gain --training resnet50 --help   another comparison: of steps of training\n"
      "How to read the ratio: docs/benchmarking.md.");
  add_options(args, options);
  add_engine_options(args, &options.config);
  args.rule([&] { return complete(options, args); });
  if (const auto exit = args.parse(words)) return *exit;
  options.config.tcp.socket_buffer = static_cast<std::uint32_t>(options.socket_buffer);
  options.config.failover = false;  // a figure that two paths share is none
  Console console("gain", options.json == "-" || options.html == "-");
  return options.server.empty()
             ? measure(options, console)
             : serve_measurements(options.config, options.server, options.once, options.plan.load.memory, console);
}

}  // namespace fairlead::cli
