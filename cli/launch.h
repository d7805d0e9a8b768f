// How an unmodified verbs program is started on softroce: which libraries the loader is given, and whether it will take
// them. Threads: one (PATH and the environment are read).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fairlead/status.h"

namespace fairlead::cli {

/// The two libraries of verbs/dropin.
struct DropinLibraries {
  std::string preload;  // libfairlead-ibverbs.so
  std::string folder;   // holds the versioned libibverbs.so.1
};

/// Those beside a program in `folder`: of a build tree, or of an installation. Errors: the places that were looked at;
/// a path that the loader would take for several (a blank, ':', ';' or '$' in it).
[[nodiscard]] Result<DropinLibraries> find_dropin(const std::string& folder);
/// The folder of this very program.
[[nodiscard]] std::string own_folder();

/// The path of a program as execvp would find it. Error: it is not there, or not executable.
[[nodiscard]] Result<std::string> find_program(const std::string& name);

/// Ok where the loader will preload a library into the program; else why it will not: a static program, one of another
/// architecture, one that starts with more rights than its caller. A script is judged by its interpreter.
[[nodiscard]] Status check_preloadable(const std::string& path);

/// What LD_PRELOAD and LD_LIBRARY_PATH become: ours before what the caller has. Where the system's libibverbs is newer
/// than rdma-core 44 and has symbols of versions that ours lacks, programs may need those and would not start: then
/// LD_PRELOAD alone, which is logged. FAIRLEAD_SYSTEM_IBVERBS besides, where only the loader's cache knows the system's
/// libibverbs and the caller names none: behind ours the loader does not find it any more.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> loader_environment(const DropinLibraries& libraries);

/// Names of the system's RDMA devices (/sys/class/infiniband), sorted.
[[nodiscard]] std::vector<std::string> system_devices();

}  // namespace fairlead::cli
