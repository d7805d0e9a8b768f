#include "memreg/limits.h"

#include <fmt/format.h>

#include <cerrno>
#include <optional>

#include "base/size_text.h"
#include "base/system/process_limits.h"

namespace fairlead::memreg {
namespace {

constexpr std::string_view kMeminfo = "/proc/meminfo", kStatus = "/proc/self/status";

std::optional<std::uint64_t> kilobytes(const SystemFiles& files, std::string_view path, std::string_view name) {
  const auto value = leading_number(files.field(path, name).value_or(""));
  return value ? std::optional(*value * 1024) : std::nullopt;
}

// Sums of what files say and what a caller asks for, which may be anything.
bool exceeds(std::uint64_t used, std::uint64_t bytes, std::uint64_t limit) {
  return used > limit || bytes > limit - used;
}

std::optional<std::string> process_limit(std::uint64_t bytes, Mapped what, const SystemFiles& files) {
  struct Row {
    std::string_view name, line, field, remedy;
  };
  constexpr Row kRows[] = {{"RLIMIT_AS", "Max address space", "VmSize", "`ulimit -v`"},
                           {"RLIMIT_DATA", "Max data size", "VmData", "`ulimit -d`"}};
  for (const Row& row : kRows) {
    if (what == Mapped::kFile && row.name == "RLIMIT_DATA") continue;
    const std::optional<std::uint64_t> limit = soft_limit(files, row.line);
    const std::uint64_t used = kilobytes(files, kStatus, row.field).value_or(0);
    if (!limit || !exceeds(used, bytes, *limit)) continue;
    return fmt::format("{} is {} bytes, of which {} are in use: raise it with {}, or use less", row.name, *limit, used,
                       row.remedy);
  }
  return std::nullopt;
}

std::optional<std::string> commit_limit(std::uint64_t bytes, const SystemFiles& files) {
  const std::uint64_t mode = files.number("/proc/sys/vm/overcommit_memory").value_or(0);
  if (mode == 2) {
    const auto limit = kilobytes(files, kMeminfo, "CommitLimit");
    const std::uint64_t used = kilobytes(files, kMeminfo, "Committed_AS").value_or(0);
    if (limit && exceeds(used, bytes, *limit)) {
      return fmt::format(
          "vm.overcommit_memory is 2, and {} of {} (CommitLimit) are promised already: raise vm.overcommit_ratio, or "
          "use "
          "less",
          size_text(used), size_text(*limit));
    }
  } else if (mode == 0) {
    const std::uint64_t all =
        kilobytes(files, kMeminfo, "MemTotal").value_or(0) + kilobytes(files, kMeminfo, "SwapTotal").value_or(0);
    if (all != 0 && bytes > all) {
      return fmt::format(
          "this machine has {} of memory and swap, and vm.overcommit_memory is 0, which promises no more at once: use "
          "less",
          size_text(all));
    }
  }
  return std::nullopt;
}

}  // namespace

Status check_fits(std::uint64_t bytes, const SystemFiles& files) {
  if (bytes < kCheckedBytes) return {};
  const std::optional<MemoryBound> bound = memory_bound(files);
  if (!bound || bytes <= bound->bytes) return {};
  return {Code::kResourceExhausted,
          fmt::format("cannot allocate {} bytes ({}): {}", bytes, size_text(bytes), bound->words)};
}

std::string mapping_limit(std::uint64_t bytes, Mapped what, int error, const SystemFiles& files) {
  constexpr std::uint64_t kSlack = 8;  // mappings come and go while they are counted
  if (error == ENOMEM) {
    if (const auto met = process_limit(bytes, what, files)) return *met;
    const Mappings mappings = read_mappings(files);
    if (mappings.limit != 0 && mappings.used + kSlack >= mappings.limit) {
      return fmt::format(
          "this process has {} mappings, and vm.max_map_count is {}: raise it with `sysctl -w vm.max_map_count={}`, or "
          "use "
          "larger pools",
          mappings.used, mappings.limit, 4 * mappings.limit);
    }
    if (what == Mapped::kFile) return "see vm.max_map_count and `ulimit -v`";
    if (const auto met = commit_limit(bytes, files)) return *met;
  }
  return "free memory, use smaller pools, or see vm.overcommit_memory and vm.max_map_count";
}

}  // namespace fairlead::memreg
