#include "cli/measure/ranks.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "bench/collective/local_ranks.h"
#include "cli/measure/interruption.h"
#include "cli/measure/launcher.h"

namespace fairlead::cli {
namespace {

constexpr std::size_t kMaxRanks = 64;
constexpr std::uint16_t kRootPort = 7473;

/// What is not given comes from the launcher that started this process.
std::string complete(RankOptions* options, const Launched& by) {
  if (options->local == 0 && options->places.empty() && options->root.empty()) {
    if (!by.size || !by.rank) {
      return "give --local N (N ranks here), start it by mpirun or srun with --root HOST:PORT (where rank 0 is), or "
             "give "
             "--ranks HOST:PORT,HOST:PORT,... (one process each)";
    }
    if (by.root_host.empty()) {
      return "give --root HOST:PORT, where rank 0 is to be reached: the launcher does not say on which host that is";
    }
    options->root = fmt::format("{}:{}", by.root_host, kRootPort);
  }
  if (options->local != 0) return "";
  if (!options->rank) options->rank = by.rank;
  if (!options->rank) return fmt::format("give --rank: no launcher says it ({})", kRankVariables);
  if (!options->root.empty() && options->size == 0) {
    if (!by.size) return "give --world-size: no launcher says how many ranks there are";
    options->size = *by.size;
  }
  return "";
}

std::string wrong_ranks(RankOptions* options) {
  const Launched by = launched([](const char* name) -> const char* { return std::getenv(name); });
  if (options->local == 0 && options->places.empty() && options->root.empty() && !by.rank)
    options->local = options->local_by_default;
  const int ways = (options->local != 0) + !options->places.empty() + !options->root.empty();
  if (ways > 1) return "--local, --ranks and --root exclude each other";
  if (options->local != 0 && options->rank) return "--rank is for --ranks and --root";
  if (options->size != 0 && options->root.empty()) return "--world-size is for --root";
  if (std::string missing = complete(options, by); !missing.empty()) return missing;
  if (options->local != 0) return "";
  const std::size_t size = options->root.empty() ? options->places.size() : options->size;
  if (size == 0 || size > kMaxRanks) return fmt::format("{} ranks: there may be 1 to {}", size, kMaxRanks);
  if (*options->rank < size) return "";
  return fmt::format("rank {} of {} ranks: they count from 0 to {}", *options->rank, size, size - 1);
}

/// Where a rank listens that is met by way of `root`: at all addresses of its host, since the name of a host may stand
/// for a loopback in that host's own table; but all ranks of a loopback stay on it.
std::string listen_of(const HostPort& root, std::size_t rank) {
  const std::uint16_t port = rank == 0 ? root.port : 0;
  if (root.host.starts_with("127.")) return fmt::format("{}:{}", root.host, port);
  return root.host == "::1" ? fmt::format("[::1]:{}", port) : fmt::format(":{}", port);
}

/// Nobody is gone before all have ended: the others would take that for a failure.
Status work(bench::Group& group, const std::function<Status(bench::Group&)>& job) {
  const Status done = job(group);
  return done.ok() ? group.leave() : done;
}

/// Ctrl-C is for all ranks of a job: launchers pass it on to each. Rank 0 says when the job ends because of it; the
/// others go on until then, so that nobody is missed.
int run_in(Result<bench::Group> group, Console& console, const std::function<Status(bench::Group&)>& job) {
  if (group) heed_interruption();
  const Status done = group ? work(*group, job) : group.error();
  if (!done.ok()) console.error(done);
  return done.ok() ? exit_code_after_interruption() : kFailure;
}

int run_here(const RankOptions& options, const EngineConfig& config, Console& console,
             const std::function<Status(bench::Group&)>& job) {
  const auto as_follower = [&](bench::Group& group) {
    const Status done = work(group, job);
    if (!done.ok()) fmt::print(stderr, "rank {}: {}\n", group.rank(), done.to_string());
    return done.ok();
  };
  const Result<bench::LocalRanks> others = bench::LocalRanks::start(config, options.local, as_follower);
  if (!others) return console.no_engine(others.error());
  EngineConfig mine = config;
  mine.listen = "127.0.0.1:0";
  Result<Engine> engine = Engine::create(std::move(mine));
  if (!engine) return console.no_engine(engine.error());
  return run_in(bench::Group::lead(&*engine, others->others()), console, job);
}

int run_one(const RankOptions& options, EngineConfig config, Console& console,
            const std::function<Status(bench::Group&)>& job) {
  const bool met = !options.root.empty();
  config.listen = met ? listen_of(*parse_host_port(options.root), *options.rank) : options.places[*options.rank];
  Result<Engine> engine = Engine::create(std::move(config));
  if (!engine) return console.no_engine(engine.error());
  return run_in(met ? bench::Group::meet(&*engine, *options.rank, options.size, options.root)
                    : bench::Group::join(&*engine, *options.rank, options.places),
                console, job);
}

}  // namespace

void add_rank_options(Args& args, RankOptions* options) {
  args.option("--local", "N", "Start N ranks here, each a process, on loopback",
              set_number(&options->local, 1, kMaxRanks));
  args.option("--ranks", "LIST",
              "Where the ranks listen, HOST:PORT of each, in order; start this command once for each",
              [options](std::string_view text) {
                options->places.clear();
                while (true) {
                  const std::size_t comma = text.find(',');
                  const Result<HostPort> place = parse_host_port(text.substr(0, comma));
                  if (!place) return place.error();
                  options->places.emplace_back(text.substr(0, comma));
                  if (comma == std::string_view::npos) break;
                  text.remove_prefix(comma + 1);
                }
                return options->places.size() <= kMaxRanks
                           ? Status()
                           : Status(Code::kInvalidArgument, fmt::format("at most {} ranks", kMaxRanks));
              });
  args.option(
      "--root", "HOST:PORT",
      fmt::format("Where rank 0 listens, of ranks that mpirun or srun start: the others come there, and learn who "
                  "else there is (default: port {} of the first host, where the launcher names that)",
                  kRootPort),
      set_host_port(&options->root, true));
  args.option("--world-size", "N", "With --root: how many ranks there are (default: as mpirun or srun say)",
              set_number(&options->size, 1, kMaxRanks));
  args.option(
      "--rank", "R", "Which of them this is, from 0 (default: as mpirun or srun say)",
      set_number([options](std::int64_t rank) { options->rank = static_cast<std::size_t>(rank); }, 0, kMaxRanks - 1));
  args.rule([options] { return wrong_ranks(options); });
}

int run_as_ranks(const RankOptions& options, EngineConfig config, Console& console,
                 const std::function<Status(bench::Group&)>& job) {
  config.failover = false;  // a figure that two paths share is none
  return options.local != 0 ? run_here(options, config, console, job)
                            : run_one(options, std::move(config), console, job);
}

}  // namespace fairlead::cli
