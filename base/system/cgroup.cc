#include "base/system/cgroup.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace fairlead {
namespace {

// Version 1 has no word for "no limit": it shows the largest number of whole pages.
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 60;

std::optional<std::uint64_t> limit_in(const SystemFiles& files, const std::string& path) {
  const std::optional<std::uint64_t> limit = files.number(path);
  return limit && *limit < kNoLimit ? limit : std::nullopt;
}

std::uint64_t swap_bytes(const SystemFiles& files) {
  return leading_number(files.field("/proc/meminfo", "SwapTotal").value_or("")).value_or(0) * 1024;
}

std::uint64_t used_in(const SystemFiles& files, const CgroupFolder& folder) {
  const bool second = folder.version == 2;
  const auto used = files.number(folder.path + (second ? "/memory.current" : "/memory.usage_in_bytes")).value_or(0);
  std::uint64_t cache = 0;
  const std::string_view name = second ? "inactive_file " : "total_inactive_file ";
  files.each_line(folder.path + "/memory.stat", [&cache, name](std::string_view line) {
    if (!line.starts_with(name)) return true;
    cache = leading_number(line.substr(name.size())).value_or(0);
    return false;
  });
  return used - std::min(used, cache);
}

// All estimates lean to more, because what is refused by them must be what cannot work.
std::optional<GroupMemory> memory_of(const SystemFiles& files, const CgroupFolder& folder, bool own) {
  GroupMemory group;
  group.file = folder.path + (folder.version == 2 ? "/memory.max" : "/memory.limit_in_bytes");
  const std::optional<std::uint64_t> limit = limit_in(files, group.file);
  if (!limit) return std::nullopt;
  group.limit = *limit;
  group.used = used_in(files, folder);
  const std::uint64_t swap = swap_bytes(files);
  if (folder.version == 2) {
    group.most = group.limit + std::min(swap, limit_in(files, folder.path + "/memory.swap.max").value_or(swap));
    return group;
  }
  // A group of version 1 need not count what is in the groups below it.
  if (!own && files.number(folder.path + "/memory.use_hierarchy") == 0U) return std::nullopt;
  group.most = group.limit + swap;
  if (const auto both = limit_in(files, folder.path + "/memory.memsw.limit_in_bytes")) {
    group.most = std::min(group.most, *both);
  }
  return group;
}

}  // namespace

std::vector<CgroupFolder> cgroup_folders(const SystemFiles& files, std::string_view controller) {
  std::vector<CgroupFolder> folders;
  files.each_line("/proc/self/cgroup", [&](std::string_view line) {  // "0::/user.slice", "4:cpu,cpuacct:/docker/ab"
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? first : line.find(':', first + 1);
    if (second == line.npos) return true;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const int version = controllers.empty() ? 2 : 1;
    const std::string listed = fmt::format(",{},", controllers), wanted = fmt::format(",{},", controller);
    if (version == 1 && listed.find(wanted) == std::string::npos) return true;
    const std::string mount = version == 2 ? "/sys/fs/cgroup" : fmt::format("/sys/fs/cgroup/{}", controllers);
    std::string path(line.substr(second + 1));
    if (path.empty() || path.front() != '/' || path.find("..") != std::string::npos)
      path.clear();  // another namespace's
    while (!path.empty() && path != "/") {
      folders.push_back({mount + path, version});
      path.resize(path.find_last_of('/'));
    }
    folders.push_back({mount, version});
    return true;
  });
  return folders;
}

double cpu_quota(const SystemFiles& files) {
  double smallest = 0;
  for (const CgroupFolder& folder : cgroup_folders(files, "cpu")) {
    std::optional<std::uint64_t> quota, period;
    if (folder.version == 2) {
      const std::vector<std::string> words =
          split_blanks(files.line(folder.path + "/cpu.max").value_or(""));  // "max N"
      if (words.size() < 2) continue;
      quota = leading_number(words[0]);
      period = leading_number(words[1]);
    } else {
      quota = files.number(folder.path + "/cpu.cfs_quota_us");
      period = files.number(folder.path + "/cpu.cfs_period_us");
    }
    if (quota.value_or(0) == 0 || period.value_or(0) == 0) continue;
    const double cores = static_cast<double>(*quota) / static_cast<double>(*period);
    smallest = smallest > 0 ? std::min(smallest, cores) : cores;
  }
  return smallest;
}

std::optional<GroupMemory> tightest_group_memory(const SystemFiles& files) {
  std::optional<GroupMemory> tightest;
  bool own_seen[3] = {};
  for (const CgroupFolder& folder : cgroup_folders(files, "memory")) {
    const bool own = !std::exchange(own_seen[folder.version], true);
    const std::optional<GroupMemory> group = memory_of(files, folder, own);
    if (group && (!tightest || group->most < tightest->most)) tightest = group;
  }
  return tightest;
}

}  // namespace fairlead
