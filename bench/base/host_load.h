// Whether a machine is quiet enough to measure on.
//
// Nothing is refused for it: who measures on a busy machine is told, and so is who reads the report.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/system/system_files.h"

namespace fairlead::bench {

/// Processor time of all CPUs since the machine started, in ticks of 1/100 s: the first line of /proc/stat, proc(5).
struct CpuTicks {
  std::uint64_t user = 0, system = 0, softirq = 0, irq = 0, idle = 0, steal = 0;
  [[nodiscard]] std::uint64_t all() const noexcept { return user + system + softirq + irq + idle + steal; }
};
[[nodiscard]] std::optional<CpuTicks> cpu_ticks(const SystemFiles& files);

/// What speaks against measuring here, a sentence each, by how the CPUs spent the time between two readings in which
/// this program did nothing, and by what the machine says of their frequency. Empty: nothing.
[[nodiscard]] std::vector<std::string> busy_warnings(const CpuTicks& before, const CpuTicks& after,
                                                     const SystemFiles& files);

/// The same of this machine, for which it waits a fifth of a second.
[[nodiscard]] std::vector<std::string> busy_warnings();

}  // namespace fairlead::bench
