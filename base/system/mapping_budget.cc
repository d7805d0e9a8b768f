#include "base/system/mapping_budget.h"

#include <fmt/format.h>

#include "base/system/process_limits.h"

namespace fairlead {

Status MappingBudget::take(std::uint32_t mappings) {
  constexpr std::int64_t kUnknown = 4096;
  if (left_.fetch_sub(mappings, std::memory_order_relaxed) >= mappings) return {};
  const Mappings now = read_mappings(files_);
  if (now.limit == 0 || now.used == 0) {
    left_.store(kUnknown, std::memory_order_relaxed);
    return {};
  }
  if (now.used + mappings + kSpare > now.limit) {
    return {Code::kResourceExhausted,
            fmt::format("this process has {} mappings, and vm.max_map_count is {}: raise it with `sysctl -w "
                        "vm.max_map_count={}`",
                        now.used, now.limit, 4 * now.limit)};
  }
  left_.store(static_cast<std::int64_t>((now.limit - now.used - mappings - kSpare) / 4), std::memory_order_relaxed);
  return {};
}

MappingBudget& MappingBudget::own() {
  static MappingBudget budget;
  return budget;
}

}  // namespace fairlead
