// Memory: how large its pages are, how much of it may be locked, mapped and used, and where it lies.
#include <fmt/format.h>

#include <cerrno>
#include <system_error>

#include "base/size_text.h"
#include "base/system/cgroup.h"
#include "base/system/process_limits.h"
#include "doctor/checks.h"

namespace fairlead::doctor {
namespace {

Finding huge_pages(const Subject& subject) {
  constexpr std::string_view kFolder = "/sys/kernel/mm/hugepages", kPrefix = "hugepages-";
  std::string seen;
  std::uint64_t all = 0, free = 0;
  for (const std::string& name : plain_names(subject.files, kFolder)) {
    if (!name.starts_with(kPrefix)) continue;
    const std::string folder = fmt::format("{}/{}/", kFolder, name);
    const std::uint64_t pages = subject.files.number(folder + "nr_hugepages").value_or(0);
    const std::uint64_t unused = subject.files.number(folder + "free_hugepages").value_or(0);
    const std::uint64_t size = leading_number(name.substr(kPrefix.size())).value_or(0) * 1024;
    seen += fmt::format("{}{} of {} pages of {} are free", seen.empty() ? "" : ", ", unused, pages, size_text(size));
    all += pages;
    free += unused;
  }
  if (seen.empty()) return not_here("this kernel has no huge pages");
  if (free != 0) return fine(seen);
  return advice(all == 0 ? "none are reserved" : seen + ", all are in use", {"sysctl -w vm.nr_hugepages=1024"});
}

/// Of "always [madvise] never" the word in brackets; empty: there is none.
std::string chosen_word(const Subject& subject, std::string_view file) {
  const std::string words = subject.files.line(file).value_or("");
  const std::size_t open = words.find('['), close = words.find(']');
  if (open == words.npos || close == words.npos || close < open) return "";
  return words.substr(open + 1, close - open - 1);
}

Finding transparent_huge_pages(const Subject& subject) {
  constexpr std::string_view kFile = "/sys/kernel/mm/transparent_hugepage/enabled";
  constexpr std::string_view kShared = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
  const std::string mode = chosen_word(subject, kFile), shared = chosen_word(subject, kShared);
  if (mode.empty()) return not_here("this kernel has none");
  std::vector<std::string> commands;
  if (mode == "never") commands.push_back(fmt::format("echo madvise > {}", kFile));
  if (shared == "never" || shared == "deny") commands.push_back(fmt::format("echo advise > {}", kShared));
  const std::string seen = shared.empty() ? mode : fmt::format("{}, and {} for shared memory", mode, shared);
  return commands.empty() ? fine(seen) : advice(seen, commands);
}

Finding memlock(const Subject& subject) {
  constexpr std::uint64_t kLittle = std::uint64_t{64} << 20;  // an engine's own receive buffers may take so much
  const LockedMemory locked = read_locked_memory(subject.files);
  const std::string limit =
      locked.limit ? fmt::format("RLIMIT_MEMLOCK is {}", size_text(*locked.limit)) : "RLIMIT_MEMLOCK is unlimited";
  if (!subject.has_rdma_hardware()) return not_here(limit + ", and no RDMA hardware pins memory here");
  if (!locked.limit) return fine(limit);
  if (locked.exempt) return fine(limit + ", which does not bind this process (CAP_IPC_LOCK)");
  std::vector<std::string> commands = {"ulimit -l unlimited", "# in a systemd unit: LimitMEMLOCK=infinity"};
  if (subject.container) commands = {"# start the container with: docker run --ulimit memlock=-1 ..."};
  return *locked.limit < kLittle ? problem(limit, commands) : advice(limit, commands);
}

Finding cgroup_memory(const Subject& subject) {
  const std::optional<GroupMemory> group = tightest_group_memory(subject.files);
  if (!group) return not_here("no control group limits the memory of this process");
  const std::string seen =
      fmt::format("{} is {}, of which {} are in use", group->file, size_text(group->limit), size_text(group->used));
  const std::uint64_t total = leading_number(subject.files.field("/proc/meminfo", "MemTotal").value_or("")).value_or(0);
  if (group->limit >= total * 1024 && total != 0) return fine(seen + ", and the machine has no more");
  if (group->used <= group->limit - group->limit / 10) return fine(seen);
  return advice(seen, {fmt::format("# raise {}, or lower EngineConfig's pools and --max-bytes", group->file)});
}

Finding map_count(const Subject& subject) {
  constexpr std::uint64_t kStock = 65530;
  const auto limit = subject.files.number("/proc/sys/vm/max_map_count");
  if (!limit) return not_here("vm.max_map_count cannot be read");
  const std::string seen = fmt::format("vm.max_map_count is {}", *limit);
  if (*limit >= kStock) return fine(seen);
  return advice(seen, {"sysctl -w vm.max_map_count=262144"});
}

Finding overcommit(const Subject& subject) {
  const auto mode = subject.files.number("/proc/sys/vm/overcommit_memory");
  if (!mode) return not_here("vm.overcommit_memory cannot be read");
  const std::string seen = fmt::format("vm.overcommit_memory is {}", *mode);
  return *mode == 2 ? advice(seen, {"sysctl -w vm.overcommit_memory=0"}) : fine(seen);
}

Finding numa_balancing(const Subject& subject) {
  if (subject.nodes == 1) return not_here("one NUMA node");
  const auto on = subject.files.number("/proc/sys/kernel/numa_balancing");
  if (!on) return not_here("this kernel has none");
  const std::string seen = fmt::format("kernel.numa_balancing is {}, and there are {} nodes", *on, subject.nodes);
  return *on == 0 ? fine(seen) : advice(seen, {"sysctl -w kernel.numa_balancing=0"});
}

Finding zone_reclaim(const Subject& subject) {
  if (subject.nodes == 1) return not_here("one NUMA node");
  const auto mode = subject.files.number("/proc/sys/vm/zone_reclaim_mode");
  if (!mode) return not_here("this kernel has none");
  const std::string seen = fmt::format("vm.zone_reclaim_mode is {}", *mode);
  return *mode == 0 ? fine(seen) : advice(seen, {"sysctl -w vm.zone_reclaim_mode=0"});
}

Finding userfaultfd(const Subject& subject) {
  if (!subject.probes.userfaultfd) return not_here("only the machine itself can be asked");
  const int error = subject.probes.userfaultfd();
  if (error == 0) return fine("allowed");
  const std::string why = std::generic_category().message(error);
  if (error == ENOSYS || error == EINVAL) {
    return advice(fmt::format("this kernel has none with write-protection: {}", why),
                  {"# a kernel from 5.11 on with CONFIG_USERFAULTFD"});
  }
  return advice(
      fmt::format("refused: {}", why),
      {"# allow userfaultfd(2) in the container's seccomp profile: docker run --security-opt seccomp=FILE ..."});
}

Finding process_copies(const Subject& subject) {
  const auto mode = subject.files.number("/proc/sys/kernel/yama/ptrace_scope");
  if (!mode) return not_here("this kernel has no Yama, which would restrict it");
  const std::string seen = fmt::format("kernel.yama.ptrace_scope is {}", *mode);
  const std::vector<std::string> commands = {"sysctl -w kernel.yama.ptrace_scope=0",
                                             "# or have payload in memory of the engine's (Engine::allocate)"};
  if (*mode == 0) return fine(seen);
  if (*mode == 1) return advice(seen + ": a process reads those alone that it has started", commands);
  if (*mode == 2) return advice(seen + ": only CAP_SYS_PTRACE reads another process", commands);
  return advice(seen + ": no process reads another, until the machine starts anew", {commands.back()});
}

Finding open_files(const Subject& subject) {
  const auto limit = soft_limit(subject.files, "Max open files");
  if (!limit) return fine("RLIMIT_NOFILE is unlimited, or cannot be read");
  const std::string seen = fmt::format("RLIMIT_NOFILE is {}", *limit);
  constexpr std::uint64_t kEnough = 1024;
  return *limit >= kEnough ? fine(seen) : advice(seen, {"ulimit -n 65536"});
}

constexpr Check kChecks[] = {
    {"huge-pages", "`/sys/kernel/mm/hugepages`",
     "Pages of 2 MiB or 1 GiB make registration and address translation, the CPU's and the NIC's, cheaper.",
     huge_pages},
    {"transparent-huge-pages", "`enabled` and `shmem_enabled` in `/sys/kernel/mm/transparent_hugepage`",
     "Where no huge pages are reserved, the pool asks the kernel for these; where shm is used it is shared memory.",
     transparent_huge_pages},
    {"memlock", "`RLIMIT_MEMLOCK`, `CAP_IPC_LOCK`",
     "RDMA hardware pins what is registered, and the kernel refuses to pin more than this limit.", memlock},
    {"cgroup-memory", "`memory.max` or `memory.limit_in_bytes` of this process's control groups",
     "More memory than this ends the process by the OOM killer, and pinned memory cannot be given back.",
     cgroup_memory},
    {"map-count", "`vm.max_map_count`",
     "Each mapped file, arena and guarded range is a mapping; at the limit mmap fails.", map_count},
    {"overcommit", "`vm.overcommit_memory`",
     "With 2 the kernel refuses address space that is never touched, which pools and threads reserve.", overcommit},
    {"numa-balancing", "`kernel.numa_balancing`",
     "The kernel takes pages out of the page table to see who uses them, and moves them away from their NIC.",
     numa_balancing},
    {"zone-reclaim", "`vm.zone_reclaim_mode`",
     "A node then drops its page cache before it uses memory of another, and allocation stalls.", zone_reclaim},
    {"userfaultfd", "`userfaultfd(2)` with `UFFD_USER_MODE_ONLY` and write-protection",
     "Only with it registrations of the application's memory can be cached safely; else they are explicit.",
     userfaultfd},
    {"process-copies", "`kernel.yama.ptrace_scope`",
     "Processes of one host copy payload once where one may read the other, and twice, through rings, where not.",
     process_copies},
    {"open-files", "`RLIMIT_NOFILE`", "Each session, path and device takes a few descriptors.", open_files},
};

}  // namespace

std::span<const Check> memory_checks() { return kChecks; }

}  // namespace fairlead::doctor
