#include "bench/collective/local_ranks.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

namespace fairlead::bench {

Result<LocalRanks> LocalRanks::start(const EngineConfig& config, std::size_t ranks, const Job& job) {
  if (ranks == 0) return Status(Code::kInvalidArgument, "a group of 0 ranks: it has at least 1");
  LocalRanks started;
  for (std::size_t rank = 1; rank < ranks; ++rank) {
    Result<LocalTarget> process = LocalTarget::start(config, [&job, rank](Engine engine) {
      Result<Group> group = Group::follow(&engine);
      if (group) return job(*group);
      fmt::print(stderr, "rank {}: {}\n", rank, group.error().to_string());
      return false;
    });
    if (!process) return process.error();
    started.addresses_.push_back(process->address());
    started.processes_.push_back(*std::move(process));
  }
  return started;
}

}  // namespace fairlead::bench
