// What mpirun, mpiexec and srun say of a process.
#include "cli/measure/launcher.h"

#include <gtest/gtest.h>

#include <map>

namespace fairlead::cli {
namespace {

Launched with(const std::map<std::string, const char*>& variables) {
  return launched([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found != variables.end() ? found->second : nullptr;
  });
}

TEST(Launcher, SaysRankSizeAndWhereTheFirstIs) {
  struct Case {
    std::map<std::string, const char*> variables;
    std::optional<std::size_t> rank, size;
    std::string root;
  };
  const std::map<std::string, const char*> job{
      {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "64"}, {"SLURM_NODELIST", "n[7-8]"}};
  std::map<std::string, const char*> mpirun_in_job = job;
  mpirun_in_job.insert(
      {{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  const Case cases[] = {
      {{}, {}, {}, ""},
      {{{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}},
       1,
       4,
       "127.0.0.1"},
      {{{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}}, 2, 3, ""},
      {{{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"MPI_LOCALNRANKS", "3"}}, 2, 3, "127.0.0.1"},
      {job, 0, 64, "n7"},
      {{{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "64"}, {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_STEP_NODELIST", "b3,c1"}},
       5,
       8,
       "b3"},
      {mpirun_in_job, 3, 8, ""},
      {{{"PMIX_RANK", "4"}}, 4, {}, ""},
      {{{"PMIX_RANK", "4"}, {"SLURM_PROCID", "4"}, {"SLURM_NTASKS", "6"}}, 4, 6, ""},
      {{{"OMPI_COMM_WORLD_RANK", "1x"}, {"PMI_RANK", ""}, {"SLURM_PROCID", "-1"}}, {}, {}, ""},
      {{{"PMI_RANK", "1"}, {"PMI_SIZE", "99999999999999999999"}}, 1, {}, ""},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(&each - cases);
    const Launched found = with(each.variables);
    EXPECT_EQ(found.rank, each.rank);
    EXPECT_EQ(found.size, each.size);
    EXPECT_EQ(found.root_host, each.root);
  }
}

TEST(Launcher, FirstHostsOfSlurmsLists) {
  for (const auto& [list, first] :
       std::initializer_list<std::pair<const char*, const char*>>{{"", ""},
                                                                  {"a", "a"},
                                                                  {"a,b", "a"},
                                                                  {"gpu[003-010,12],login", "gpu003"},
                                                                  {"n[5]", "n5"},
                                                                  {"n[5,7]-ib,x", "n5-ib"},
                                                                  {"r[1-2]n[08-09]", "r1n08"},
                                                                  {"n[", "n"},
                                                                  {"n[3", "n3"},
                                                                  {",a", ""}}) {
    EXPECT_EQ(first_host(list), first) << list;
  }
}

}  // namespace
}  // namespace fairlead::cli
