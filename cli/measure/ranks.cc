#include "cli/measure/ranks.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "bench/collective/local_ranks.h"

namespace fairlead::cli {
namespace {

constexpr std::size_t kMaxRanks = 64;

/// What launchers tell each process that they start.
constexpr const char* kRankVariables[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"};

std::optional<std::size_t> rank_of_launcher() {
  for (const char* name : kRankVariables) {
    const char* text = std::getenv(name);
    if (text == nullptr) continue;
    const std::string_view digits = text;
    std::size_t rank = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    if (error == std::errc() && end == digits.data() + digits.size()) return rank;
  }
  return std::nullopt;
}

std::string wrong_ranks(RankOptions* options) {
  if ((options->local != 0) == !options->places.empty()) {
    return "give --local N (N ranks here) or --ranks HOST:PORT,HOST:PORT,... (one process each)";
  }
  if (options->local != 0) return options->rank ? "--rank is for --ranks" : "";
  if (!options->rank) options->rank = rank_of_launcher();
  if (!options->rank) {
    return "give --rank: no launcher says it (OMPI_COMM_WORLD_RANK, PMIX_RANK, PMI_RANK, SLURM_PROCID)";
  }
  if (*options->rank < options->places.size()) return {};
  return fmt::format("rank {} of {} ranks: they count from 0 to {}", *options->rank, options->places.size(),
                     options->places.size() - 1);
}

int run_here(const RankOptions& options, const EngineConfig& config, Console& console,
             const std::function<Status(bench::Group&)>& job) {
  const auto as_follower = [&](bench::Group& group) {
    const Status done = job(group);
    if (!done.ok()) fmt::print(stderr, "rank {}: {}\n", group.rank(), done.to_string());
    return done.ok();
  };
  const Result<bench::LocalRanks> others = bench::LocalRanks::start(config, options.local, as_follower);
  if (!others) return console.no_engine(others.error());
  EngineConfig mine = config;
  mine.listen = "127.0.0.1:0";
  Result<Engine> engine = Engine::create(std::move(mine));
  if (!engine) return console.no_engine(engine.error());
  Result<bench::Group> group = bench::Group::lead(&*engine, others->others());
  const Status done = group ? job(*group) : group.error();
  if (!done.ok()) console.error(done);
  return done.ok() ? kSuccess : kFailure;
}

int run_one(const RankOptions& options, EngineConfig config, Console& console,
            const std::function<Status(bench::Group&)>& job) {
  config.listen = options.places[*options.rank];
  Result<Engine> engine = Engine::create(std::move(config));
  if (!engine) return console.no_engine(engine.error());
  Result<bench::Group> group = bench::Group::join(&*engine, *options.rank, options.places);
  const Status done = group ? job(*group) : group.error();
  if (!done.ok()) console.error(done);
  return done.ok() ? kSuccess : kFailure;
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
