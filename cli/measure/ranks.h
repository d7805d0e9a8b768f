// Commands that several ranks run together: as processes here, or one on each host, started by hand, mpirun or srun.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/collective/group.h"
#include "cli/base/args.h"
#include "cli/base/console.h"
#include "fairlead/config.h"

namespace fairlead::cli {

struct RankOptions {
  std::size_t local = 0;             // so many, all here; 0: those of `places`
  std::size_t local_by_default = 0;  // so many, all here, where neither a flag nor a launcher says what ranks there are
  std::vector<std::string> places;   // HOST:PORT of each
  std::string root;                  // else HOST:PORT of rank 0, which tells `size` ranks of each other
  std::size_t size = 0;
  std::optional<std::size_t> rank;  // which of them this is
};

/// --local, --ranks, --root, --world-size and --rank, and the rule that goes with them. `options` must outlive
/// args.parse().
void add_rank_options(Args& args, RankOptions* options);

/// Runs `job` in each rank that this process stands for, and gives the exit code. It must not have begun any thread.
/// Once the ranks have met, signals are noted (interruption.h): rank 0 is to end the job, the others follow it.
[[nodiscard]] int run_as_ranks(const RankOptions& options, EngineConfig config, Console& console,
                               const std::function<Status(bench::Group&)>& job);

}  // namespace fairlead::cli
