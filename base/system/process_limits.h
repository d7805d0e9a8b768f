// What Linux allows this process, read from its files: locked memory, address space, mappings, memory at all.
//
// Read when something was refused, to name the number that it met, or beforehand, where there would be no refusal but
// the kernel's OOM killer. Sources: getrlimit(2), proc(5), Documentation/admin-guide/cgroup-v2.rst and
// cgroup-v1/memory.rst of Linux. Threads: functions without state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/system/system_files.h"

namespace fairlead {

/// The soft limit of a line of /proc/self/limits ("Max locked memory"). nullopt: unlimited, or not readable.
[[nodiscard]] std::optional<std::uint64_t> soft_limit(const SystemFiles& files, std::string_view name);

struct LockedMemory {
  std::optional<std::uint64_t> limit;  // RLIMIT_MEMLOCK in bytes; nullopt: none
  std::uint64_t pinned = 0;            // bytes that devices have pinned for this process
  bool exempt = false;                 // it has CAP_IPC_LOCK of the host, which the limit does not bind
};
[[nodiscard]] LockedMemory read_locked_memory(const SystemFiles& files);

struct Mappings {
  std::uint64_t limit = 0;  // vm.max_map_count; 0: not readable
  std::uint64_t used = 0;   // of this process
};
[[nodiscard]] Mappings read_mappings(const SystemFiles& files);

struct MemoryBound {
  std::uint64_t bytes = 0;  // no more can be in use at once, whatever is given back or swapped out
  std::string words;  // what says so, and what to do: "the control group's limit (...) is 512.0 MiB: raise it ..."
};
/// The lowest of the control groups' limits and what the machine has, each with swap, and with the huge pages that are
/// free and stand outside of both. nullopt: nothing could be read.
[[nodiscard]] std::optional<MemoryBound> memory_bound(const SystemFiles& files);

}  // namespace fairlead
