// Control groups: the one that this process is in, those above it, and what they allow.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/system/system_files.h"

namespace fairlead {

struct CgroupFolder {
  std::string path;  // "/sys/fs/cgroup/user.slice": below the files' root
  int version = 2;   // 1 or 2: which files it has
};

/// This process's own group and those above it, own first, as far as they can be seen, by the lines of
/// /proc/self/cgroup. `controller` ("memory", "cpu") chooses among the trees of version 1; that of version 2 has all.
[[nodiscard]] std::vector<CgroupFolder> cgroup_folders(const SystemFiles& files, std::string_view controller);

/// How many cores' time this process may use: the smallest quota of its groups. 0: no limit.
[[nodiscard]] double cpu_quota(const SystemFiles& files);

struct GroupMemory {
  std::uint64_t limit = 0;  // bytes of memory
  std::uint64_t used = 0;   // bytes, without page cache that nobody used lately, which is given back at need
  std::uint64_t most = 0;   // bytes that could ever be in use at once: with the swap that the group may use
  std::string file;         // where the limit stands: "/sys/fs/cgroup/user.slice/memory.max"
};

/// The group that allows the least memory of this process's and those above it; nullopt where none has a limit.
[[nodiscard]] std::optional<GroupMemory> tightest_group_memory(const SystemFiles& files);

}  // namespace fairlead
