#include "cli/measure/launcher.h"

#include <charconv>

namespace fairlead::cli {
namespace {

struct Launcher {
  const char *rank, *size, *size_here, *hosts;  // null: it does not say
};

// In the order in which they are asked: mpirun within a job of Slurm leaves Slurm's variables, which are of the job.
// PMIx has no variable for the size; who starts by it (srun --mpi=pmix, prterun) says that in one of the others.
constexpr Launcher kLaunchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", nullptr},  // Open MPI
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", nullptr},                                     // MPICH, Intel MPI
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", nullptr, "SLURM_STEP_NODELIST"},
    {"SLURM_PROCID", "SLURM_NTASKS", nullptr, "SLURM_NODELIST"},
    {"PMIX_RANK", nullptr, nullptr, nullptr},
};

std::optional<std::size_t> number(const char* text) {
  if (text == nullptr) return std::nullopt;
  const std::string_view digits = text;
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

}  // namespace

Launched launched(const std::function<const char*(const char*)>& variable) {
  const auto text = [&](const char* name) { return name != nullptr ? variable(name) : nullptr; };
  Launched found;
  for (const Launcher& launcher : kLaunchers) {
    const std::optional<std::size_t> rank = number(text(launcher.rank)), size = number(text(launcher.size));
    if (!rank) continue;
    if (!found.rank) found.rank = rank;
    if (!size) continue;
    found = {.rank = rank, .size = size, .root_host = ""};
    if (const char* hosts = text(launcher.hosts); hosts != nullptr) found.root_host = first_host(hosts);
    if (number(text(launcher.size_here)) == size) found.root_host = "127.0.0.1";
    break;
  }
  return found;
}

std::string first_host(std::string_view slurm_list) {
  const std::size_t end = slurm_list.find_first_of(",[");
  std::string host(slurm_list.substr(0, end));
  if (end == std::string_view::npos || slurm_list[end] == ',') return host;
  const std::string_view ranges = slurm_list.substr(end + 1);
  host += ranges.substr(0, ranges.find_first_of(",-]"));
  const std::size_t close = ranges.find(']');
  if (close != std::string_view::npos) host += first_host(ranges.substr(close + 1));  // a suffix, or the next range
  return host;
}

}  // namespace fairlead::cli
