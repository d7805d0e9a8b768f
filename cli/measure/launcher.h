// What a launcher of parallel programs (mpirun, mpiexec, srun) says in the environment of each process that it starts.
// Threads: functions without state.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace fairlead::cli {

struct Launched {
  std::optional<std::size_t> rank, size;
  std::string root_host;  // where rank 0 is; empty: it does not say
};

/// The names of variables that rank comes from, for messages.
inline constexpr std::string_view kRankVariables = "OMPI_COMM_WORLD_RANK, PMIX_RANK, PMI_RANK, SLURM_PROCID";

/// `variable(name)`: its value, or null. What is no number counts as not there. Slurm's rank 0 is on the first host of
/// its step, as with every distribution but an arbitrary one; of others rank 0 is known to be here only if all ranks
/// are.
[[nodiscard]] Launched launched(const std::function<const char*(const char*)>& variable);

/// "gpu[003-010,12],login" begins with "gpu003". Of an empty list: empty.
[[nodiscard]] std::string first_host(std::string_view slurm_list);

}  // namespace fairlead::cli
