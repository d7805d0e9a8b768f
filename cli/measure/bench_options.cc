#include "cli/measure/bench_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <set>
#include <utility>

#include "base/words.h"
#include "bench/base/sizes.h"
#include "cli/base/engine_options.h"
#include "cli/measure/interruption.h"
#include "cli/measure/memory_option.h"
#include "cli/measure/prometheus_file.h"

namespace fairlead::cli {
namespace {

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

// What batches and bursts do not go with; the sizes are known. Empty: all is well.
std::string misplaced_batch(const bench::Plan& plan) {
  if (plan.kind == bench::Kind::kLatency) return "";
  if (plan.burst && plan.op == bench::Op::kSend)
    return "--burst is for writes and reads: each message is a transfer of its own";
  if (plan.burst && plan.batch != 1) return "--burst and --batch exclude each other: a burst makes its groups itself";
  if (plan.burst && plan.rate > 0)
    return "--burst and --rate exclude each other: at a rate each operation has a time of its own";
  if (plan.batch == 1) return "";
  if (plan.op == bench::Op::kSend) return "--batch is for writes and reads: each message is a transfer of its own";
  if (plan.rate > 0) return "--batch and --rate exclude each other: at a rate each operation has a time of its own";
  if (plan.batch > plan.depth) {
    return fmt::format("--batch {0} is more than the {1} operations in flight; raise --depth to {0} or more",
                       plan.batch, plan.depth);
  }
  for (const std::uint64_t size : plan.sizes) {
    if (plan.batch <= plan.footprint / size) continue;
    return fmt::format("--batch {} of {} takes {} at each end, and --footprint is {}", plan.batch,
                       bench::format_size(size), bench::format_size(plan.batch * size),
                       bench::format_size(plan.footprint));
  }
  return "";
}

// The rules that span several flags. Empty: all is well.
std::string complete(BenchOptions& options, const Args& args) {
  bench::Plan& plan = options.plan;
  if (std::string wrong = fairlead::cli::complete(options.cores, options.local, options.config); !wrong.empty())
    return wrong;
  if (!options.server.empty()) {
    if (options.local) return "--server and --local exclude each other";
    if (!options.kind.empty()) {
      return fmt::format("--server and {} exclude each other: the end that measures says what is measured",
                         options.kind);
    }
    return misplaced(
        args,
        {"--op",        "--size", "--duration", "--iterations", "--warmup",        "--depth",    "--footprint",
         "--no-verify", "--json", "--arrival",  "--rate",       "--repeat",        "--interval", "--csv",
         "--compare",   "--wait", "--sessions", "--initiators", "--bidirectional", "--columns",  "--prometheus-file",
         "--batch",     "--burst"},
        "and --server exclude each other: it is for the end that measures");
  }
  if (options.kind.empty()) return "say what to measure: bw or lat";
  if (options.local == !options.targets.empty()) return "give either --local or the HOST:PORT of a bench --server";
  if (args.given("--once")) return "--once is for --server";
  if (args.given("--duration") && args.given("--iterations")) return "--duration and --iterations exclude each other";
  if (args.given("--wait") && options.local) return "--wait is for a bench --server elsewhere";
  if (!options.compare.empty() && args.given("--transport")) return "--transport and --compare exclude each other";
  if (options.json == "-" && options.csv == "-") return "--json - and --csv - exclude each other";
  if (options.kind == "lat") {
    const std::string wrong = misplaced(
        args, {"--depth", "--batch", "--burst", "--footprint", "--sessions", "--initiators", "--bidirectional"},
        "is for bw: lat has one operation at a time");
    if (!wrong.empty()) return wrong;
    if (options.targets.size() > 1) return "lat is with one target; bw may have several";
  }
  plan.kind = options.kind == "bw" ? bench::Kind::kBandwidth : bench::Kind::kLatency;
  plan.op = options.op == "write" ? bench::Op::kWrite : options.op == "read" ? bench::Op::kRead : bench::Op::kSend;
  if (options.plan.bidirectional && plan.op != bench::Op::kWrite) {
    return fmt::format("--bidirectional writes and reads at once, so it excludes --op {}", options.op);
  }
  if (std::set<std::string>(options.targets.begin(), options.targets.end()).size() != options.targets.size()) {
    return "a target is given twice; --sessions says how many sessions there are with each";
  }
  const std::uint64_t sessions = std::max<std::uint64_t>(options.targets.size(), 1) * options.initiators *
                                 options.sessions * (options.plan.bidirectional ? 2 : 1);
  if (sessions > bench::kMaxSessions) {
    return fmt::format(
        "--sessions, for each of the initiators, targets and directions, come to {} sessions; at most {} "
        "are measured at once",
        sessions, bench::kMaxSessions);
  }
  if (args.given("--arrival") && !plan.is_ping_pong_of_writes()) return "--arrival is for lat --op write";
  plan.arrival = options.arrival == "memory" ? bench::Arrival::kMemory : bench::Arrival::kNotification;
  if (std::string wrong = misplaced_memory(plan); !wrong.empty()) return wrong;
  plan.verify = !options.no_verify;
  if (!options.compare.empty() && !args.given("--repeat")) plan.repeat = 3;
  if (plan.sizes.empty()) plan.sizes = {plan.kind == bench::Kind::kBandwidth ? std::uint64_t{1} << 20 : 8};
  if (std::string wrong = misplaced_batch(plan); !wrong.empty()) return wrong;
  for (const std::uint64_t size : plan.sizes) {
    if (plan.op == bench::Op::kSend && size > options.config.max_message_bytes) {
      return fmt::format("--size {}: a message has at most {}", bench::format_size(size),
                         bench::format_size(options.config.max_message_bytes));
    }
  }
  return "";
}

}  // namespace

void add_bench_options(Args& args, BenchOptions* options) {
  bench::Plan* const plan = &options->plan;
  plan->stop = &interruption();
  args.positional("bw|lat", "What to measure", set_choice(&options->kind, {"bw", "lat"}), false);
  args.positionals("HOST:PORT", "A bench --server, or several, which are measured at once",
                   [options](std::string_view text) {
                     std::string place;
                     Status status = set_places(&place)(text);
                     if (status.ok()) options->targets.push_back(std::move(place));
                     return status;
                   });
  args.option("--server", "HOST:PORT", "Be the passive end, for `bench bw|lat HOST:PORT` elsewhere",
              set_host_port(&options->server, false));
  args.flag("--once", &options->once, "With --server: end when the first initiator has gone");
  args.flag("--local", &options->local, "Start the passive end here, as a process of its own on loopback");
  args.option("--op", "OP", "write, read or send (default write)", set_choice(&options->op, {"write", "read", "send"}));
  args.option("--arrival", "HOW",
              "lat --op write: how an end learns of a write, by its notification or by looking at the memory, as "
              "ib_write_lat does (default notification)",
              set_choice(&options->arrival, {"notification", "memory"}));
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
  args.option("--batch", "N",
              "bw: operations that are posted by one call, as one transfer, which completes once (default 1)",
              set_number(&plan->batch, 1, bench::kMaxDepth));
  args.flag("--burst", &plan->burst,
            "bw: operations are posted one by one, and end in groups of up to 96 (default: each by itself)");
  args.option("--footprint", "SIZE", "bw: memory at each end that operations go round (default 1M)",
              set_size(&plan->footprint, 1, bench::kMaxBuffer));
  add_memory(args, &plan->memory);
  args.option("--sessions", "N",
              "bw: sessions with each target (with --lanes: spread over them), each driven by a thread of its own; "
              "--depth, --footprint and --iterations are of each (default 1)",
              set_number(&options->sessions, 1, static_cast<std::int64_t>(bench::kMaxSessions)));
  args.flag("--bidirectional", &plan->bidirectional,
            "bw: --sessions write to the target, and as many read from it at the same time");
  args.option("--initiators", "N",
              "bw: N engines in this process, each with sessions of its own, begin together: many to one (default 1)",
              set_number(&options->initiators, 1, static_cast<std::int64_t>(bench::kMaxSessions)));
  args.option(
      "--rate", "N",
      "Operations a second, each due at its time whatever became of those before: latency is from then (default: as "
      "fast as they complete)",
      set_decimal(&plan->rate, "operations a second", 0.1, 1e9));
  args.option("--repeat", "N",
              "Measure each size so often: mean, spread and a 95 % interval (default 1; with --compare 3)",
              set_number(&plan->repeat, 1, static_cast<std::int64_t>(bench::kMaxRepeats)));
  args.option("--interval", "S", "Say how far it is every S seconds", set_seconds(&plan->interval, 0.01, 86'400));
  args.option(
      "--compare", "LIST",
      "Transports, commas between, in place of --transport: each size over each in turn. For a ratio and how sure it "
      "is: fairlead gain",
      set_transports(&options->compare));
  args.option("--wait", "S", "Keep trying for so long to reach a target that is not there yet (default 0)",
              set_seconds(&options->wait, 0, 86'400));
  args.flag("--no-verify", &options->no_verify, "Do not check the data");
  args.option("--cores", "LIST",
              "Run on these processors (0-3,8), all threads; with --local both ends do, or OWN:TARGET each on its own. "
              "Lanes are not pinned within them unless --placement says so (default: as started)",
              set_text(&options->cores.text));
  args.option("--columns", "WHOSE",
              "The table as `fairlead` has it, or with the columns of `perftest` (default fairlead)",
              set_choice(&options->columns, {"fairlead", "perftest"}));
  args.option("--json", "FILE", "Write a report; - for standard output", set_text(&options->json));
  args.option("--csv", "FILE", "Write a line per size; - for standard output", set_text(&options->csv));
  add_prometheus_file(args, &options->prometheus);
  args.option("--metrics", "HOST:PORT",
              "Serve /metrics of this end there meanwhile; of HOST:PORT-LAST the first port that is free (default: not "
              "at all)",
              set_text(&options->metrics));
  args.flag("--quiet", &options->quiet, "Say nothing but what goes wrong: the report of --json has the figures");
  add_engine_options(args, &options->config);
  args.rule([&args, options] { return complete(*options, args); });
}

}  // namespace fairlead::cli
