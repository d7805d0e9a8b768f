#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "bench/base/cpu_time.h"
#include "bench/base/file_output.h"
#include "bench/base/host.h"
#include "bench/base/report_head.h"
#include "bench/base/sizes.h"
#include "bench/collective/all_reduce.h"
#include "bench/collective/reduce.h"
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
  std::vector<std::uint64_t> sizes{std::uint64_t{100'000'000}};
  std::string dtype = "F32", algorithm = "auto", json;
  std::uint64_t iterations = 20, warm_up = 3, piece = bench::AllReduceOptions{}.piece_bytes;
};

struct Times {
  std::uint64_t bytes = 0;
  std::vector<double> seconds;  // of each, in order
  double cpu_seconds = 0;       // of this rank, in all of them
  bool interrupted = false;
};

bench::Algorithm algorithm_of(const Options& options) {
  if (options.algorithm == "ring") return bench::Algorithm::kRing;
  return options.algorithm == "tree" ? bench::Algorithm::kTree : bench::Algorithm::kAuto;
}

/// All ranks put in the same small numbers; what comes out is so many times these, which every type holds exactly.
Status verify(const Options& options, bench::AllReduce* sum, std::size_t ranks, DType dtype, std::size_t count) {
  const std::span<std::byte> bytes(sum->data(), count * element_size(dtype));
  bench::fill(dtype, bytes, 1);
  if (const Status done = sum->all_reduce(dtype, count, algorithm_of(options)); !done.ok()) return done;
  const std::size_t wrong = bench::find_other(dtype, bytes, static_cast<unsigned>(ranks));
  if (wrong == count) return {};
  return {Code::kDataLoss, fmt::format("element {} of {} is not the sum of {} ranks'", wrong, count, ranks)};
}

Result<Times> measure(bench::Group& group, const Options& options, bench::AllReduce* sum, std::uint64_t bytes) {
  const DType dtype = *dtype_from_string(options.dtype);
  const std::size_t count = bytes / element_size(dtype);
  Times times;
  times.bytes = count * element_size(dtype);
  for (std::uint64_t i = 0; i < options.warm_up + options.iterations; ++i) {
    const Result<std::uint64_t> stopped = group.from_first(interruption() != 0 ? 1 : 0);
    if (!stopped) return stopped.error();
    times.interrupted = *stopped != 0;
    if (times.interrupted) break;
    std::memset(sum->data(), 0, times.bytes);  // sums of sums would become infinite
    if (const Status all = group.barrier(); !all.ok()) return all;
    const double cpu_before = bench::process_cpu_seconds();
    const bench::Stopwatch one;
    if (const Status done = sum->all_reduce(dtype, count, algorithm_of(options)); !done.ok()) return done;
    const double seconds = one.seconds();
    if (i < options.warm_up) continue;
    times.seconds.push_back(seconds);
    times.cpu_seconds += bench::process_cpu_seconds() - cpu_before;
  }
  if (times.seconds.empty()) return times;
  if (const Status same = verify(options, sum, group.size(), dtype, count); !same.ok()) return same;
  return times;
}

// Names as of nccl-tests, for the same figures.
std::string table_head() {
  return fmt::format(
      "{:>10} {:>12} {:>12} {:>12} {:>12} {:>12} {:>12}  (algbw: bytes by p50; busbw: what each rank's "
      "link carries of it, 2 (N-1)/N)",
      "size", "p50 us", "min us", "max us", "algbw GB/s", "busbw GB/s", "cpu s/GB");
}

bench::Json to_json(const Times& times, std::size_t ranks, Console& console) {
  std::vector<double> sorted = times.seconds;
  std::sort(sorted.begin(), sorted.end());
  const double median = sorted[sorted.size() / 2], bytes = static_cast<double>(times.bytes),
               n = static_cast<double>(ranks);
  console.line(fmt::format("{:>10} {:>12.1f} {:>12.1f} {:>12.1f} {:>12.3f} {:>12.3f} {:>12.3f}",
                           bench::format_bytes(bytes), median * 1e6, sorted.front() * 1e6, sorted.back() * 1e6,
                           bytes / median / 1e9, bytes * 2 * (n - 1) / n / median / 1e9,
                           times.cpu_seconds / (static_cast<double>(sorted.size()) * bytes * 1e-9)));
  bench::Json::Array seconds;
  for (const double one : times.seconds) seconds.emplace_back(one);
  return bench::Json::Object{{"bytes", times.bytes},
                             {"seconds", std::move(seconds)},
                             {"seconds_p50", median},
                             {"seconds_min", sorted.front()},
                             {"seconds_max", sorted.back()},
                             {"bytes_per_second", bytes / median},
                             {"bus_bytes_per_second", bytes * 2 * (n - 1) / n / median},
                             {"cpu_seconds_rank0", times.cpu_seconds}};
}

/// What came of it; `ended`: how. Errors: those of write_text.
Status write_report(const Options& options, std::size_t ranks, const std::string& path, bench::Json::Array results,
                    bool interrupted, const Status& ended) {
  const bench::Json document = bench::report_head(
      "fairlead.bench.allreduce/1", {{"host", to_json(bench::host_info())},
                                     {"path", path},
                                     {"ranks", std::uint64_t{ranks}},
                                     {"dtype", options.dtype},
                                     {"algorithm", options.algorithm},
                                     {"iterations", options.iterations},
                                     {"verified", true},
                                     {"interrupted", interrupted || !ended.ok()},
                                     {"error", ended.ok() ? bench::Json() : bench::Json(ended.to_string())},
                                     {"results", std::move(results)}});
  return bench::write_text(options.json, document.dump(2) + "\n");
}

Status all_reduce_as(bench::Group& group, const Options& options, Console& console) {
  const std::uint64_t largest = *std::max_element(options.sizes.begin(), options.sizes.end());
  Result<bench::AllReduce> sum =
      bench::AllReduce::prepare(&group, "sums", {.bytes = largest, .piece_bytes = options.piece / 4 * 4});
  if (!sum) return sum.error();
  const std::string path = group.size() > 1 && group.rank() == 0 ? group.peer(1).explain() : std::string();
  if (!path.empty()) console.line(path);
  bench::Json::Array results;
  if (group.rank() == 0) console.line(table_head());
  Status status;
  bool interrupted = false;
  for (const std::uint64_t bytes : options.sizes) {
    const Result<Times> times = measure(group, options, &*sum, bytes);
    status = times.status();
    if (!times) break;
    if (group.rank() == 0 && !times->seconds.empty()) results.push_back(to_json(*times, group.size(), console));
    interrupted = times->interrupted;
    if (interrupted) break;
  }
  if (status.ok()) status = group.barrier();
  if (group.rank() != 0) return status;
  if (interrupted) console.line("interrupted: what stands above is all that was measured");
  if (options.json.empty() || results.empty()) return status;
  const Status written = write_report(options, group.size(), path, std::move(results), interrupted, status);
  return status.ok() ? written : status;
}

}  // namespace

int bench_allreduce_command(Words words) {
  Options options;
  options.config.progress = fairlead::Progress::kApplication;  // a rank waits for its neighbour, and does nothing else
  Args args("bench allreduce", "Measures sums over several ranks: every rank gets the sum of what all ranks have.",
            "Examples:\n"
            "  fairlead bench allreduce --local 4 --transport tcp --sizes 1M,64M\n"
            "  mpirun -n 4 fairlead bench allreduce --root node1:7473 --json report.json\n"
            "algbw is bytes by time; busbw what each rank's link carries of it, 2 (N-1)/N, as in nccl-tests. See "
            "docs/benchmarks.md.");
  add_rank_options(args, &options.ranks);
  args.option("--sizes", "LIST", "Bytes of what is summed (default 100000000)", [&options](std::string_view text) {
    Result<std::vector<std::uint64_t>> sizes = bench::parse_size_list(text, std::uint64_t{4} << 30);
    if (!sizes) return sizes.error();
    options.sizes = *std::move(sizes);
    const std::uint64_t least = *std::min_element(options.sizes.begin(), options.sizes.end());
    return least >= 4 ? Status() : Status(Code::kInvalidArgument, fmt::format("{}: a sum has at least 4 bytes", least));
  });
  args.option("--dtype", "TYPE", "F32, F16 or BF16 (default F32)", set_choice(&options.dtype, {"F32", "F16", "BF16"}));
  args.option("--algorithm", "NAME", "ring, tree (up to 256K) or auto, a tree up to 32K (default auto)",
              set_choice(&options.algorithm, {"auto", "ring", "tree"}));
  args.option("--piece", "BYTES", "What crosses in one go (default 512K)",
              set_size(&options.piece, 1024, std::uint64_t{1} << 30));
  args.option("--iterations", "N", "Sums that count, of each size (default 20)",
              set_number(&options.iterations, 1, 1'000'000));
  args.option("--warm-up", "N", "Sums before them (default 3)", set_number(&options.warm_up, 0, 1'000'000));
  args.option("--json", "FILE", "Write a report; - for standard output", set_text(&options.json));
  add_engine_options(args, &options.config);
  args.rule([&]() -> std::string {
    const std::size_t ranks = options.ranks.local + options.ranks.places.size() + options.ranks.size;
    return ranks == 1 ? "1 rank has nothing to sum: there must be 2 or more" : "";
  });
  if (const auto exit = args.parse(words)) return *exit;
  Console console("bench", options.json == "-");
  if (const Status ok = options.json.empty() ? Status() : bench::check_writable(options.json); !ok.ok()) {
    console.error(ok);
    return kFailure;
  }
  return run_as_ranks(options.ranks, options.config, console,
                      [&](bench::Group& group) { return all_reduce_as(group, options, console); });
}

}  // namespace fairlead::cli
