#include "base/system/process_limits.h"

#include <fmt/format.h>

#include <charconv>

#include "base/size_text.h"
#include "base/system/cgroup.h"

namespace fairlead {
namespace {

constexpr std::string_view kStatus = "/proc/self/status";

// "8 kB" of a file of fields.
std::uint64_t kilobytes(const SystemFiles& files, std::string_view path, std::string_view name) {
  return leading_number(files.field(path, name).value_or("")).value_or(0) * 1024;
}

// A capability in a user namespace is none on the host, which is what the kernel asks for here.
bool holds_for_host(const SystemFiles& files) {
  const std::vector<std::string> map = split_blanks(files.line("/proc/self/uid_map").value_or("0 0 4294967295"));
  return map.size() == 3 && map[0] == "0" && map[1] == "0" && map[2] == "4294967295";
}

bool has_capability(const SystemFiles& files, unsigned number) {
  const std::string text = files.field(kStatus, "CapEff").value_or("");
  std::uint64_t mask = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mask, 16);
  return error == std::errc() && (mask >> number & 1) != 0;
}

std::uint64_t free_huge_pages(const SystemFiles& files) {
  std::uint64_t bytes = 0;
  constexpr std::string_view kFolder = "/sys/kernel/mm/hugepages", kPrefix = "hugepages-";
  for (const std::string& name : files.list(kFolder)) {
    if (!name.starts_with(kPrefix)) continue;
    const std::uint64_t size = leading_number(name.substr(kPrefix.size())).value_or(0) * 1024;
    const std::string folder = fmt::format("{}/{}/", kFolder, name);
    bytes += size * (files.number(folder + "free_hugepages").value_or(0) +
                     files.number(folder + "nr_overcommit_hugepages").value_or(0));
  }
  return bytes;
}

}  // namespace

std::optional<std::uint64_t> soft_limit(const SystemFiles& files, std::string_view name) {
  std::optional<std::uint64_t> limit;
  files.each_line("/proc/self/limits", [&](std::string_view line) {  // "Max open files   1024   4096   files"
    if (!line.starts_with(name) || line.size() == name.size() || line[name.size()] != ' ') return true;
    limit = leading_number(line.substr(name.size()));
    return false;
  });
  return limit;
}

LockedMemory read_locked_memory(const SystemFiles& files) {
  constexpr unsigned kIpcLock = 14;  // CAP_IPC_LOCK of linux/capability.h
  return {.limit = soft_limit(files, "Max locked memory"),
          .pinned = kilobytes(files, kStatus, "VmPin"),
          .exempt = has_capability(files, kIpcLock) && holds_for_host(files)};
}

Mappings read_mappings(const SystemFiles& files) {
  Mappings mappings{.limit = files.number("/proc/sys/vm/max_map_count").value_or(0)};
  files.each_line("/proc/self/maps", [&mappings](std::string_view) { return ++mappings.used != 0; });
  return mappings;
}

std::optional<MemoryBound> memory_bound(const SystemFiles& files) {
  constexpr std::string_view kMeminfo = "/proc/meminfo";
  std::optional<MemoryBound> bound;
  const std::uint64_t memory = kilobytes(files, kMeminfo, "MemTotal");
  if (memory != 0) {
    bound = {.bytes = memory + kilobytes(files, kMeminfo, "SwapTotal"), .words = {}};
    bound->words =
        fmt::format("this machine has {} of memory and swap: use less, or add swap", size_text(bound->bytes));
  }
  if (const std::optional<GroupMemory> group = tightest_group_memory(files)) {
    const std::uint64_t most = group->most + free_huge_pages(files);
    if (!bound || most < bound->bytes) {
      bound = {.bytes = most, .words = {}};
      bound->words = fmt::format(
          "the control group's limit, {}, is {}{}: raise it (`docker run --memory`, systemd `MemoryMax=`, "
          "`resources.limits.memory` of Kubernetes), or use less",
          group->file, size_text(group->limit),
          most > group->limit ? fmt::format(" ({} with swap and huge pages)", size_text(most)) : "");
    }
  }
  return bound;
}

}  // namespace fairlead
