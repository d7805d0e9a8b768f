#include "base/system/affinity.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>

#include "base/index_list.h"

namespace fairlead {
namespace {

struct Free {
  void operator()(cpu_set_t* set) const noexcept { CPU_FREE(set); }
};
using CpuSet = std::unique_ptr<cpu_set_t, Free>;

constexpr std::size_t kFewest = 1024, kMost = std::size_t{1} << 20;

}  // namespace

std::vector<unsigned> affinity_of(pthread_t thread) {
  // The kernel refuses a set that is smaller than its own.
  for (std::size_t size = kFewest; size <= kMost; size *= 2) {
    const CpuSet set(CPU_ALLOC(size));
    if (set == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(size);
    CPU_ZERO_S(bytes, set.get());
    const int error = ::pthread_getaffinity_np(thread, bytes, set.get());
    if (error == EINVAL) continue;
    std::vector<unsigned> cpus;
    for (unsigned cpu = 0; error == 0 && cpu < size; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, set.get())) cpus.push_back(cpu);
    }
    return cpus;
  }
  return {};
}

Status set_affinity(pthread_t thread, std::span<const unsigned> cpus) {
  const std::size_t size =
      std::max<std::size_t>(kFewest, cpus.empty() ? 0 : std::size_t{*std::ranges::max_element(cpus)} + 1);
  const CpuSet set(CPU_ALLOC(size));
  if (set == nullptr) return {Code::kResourceExhausted, fmt::format("no memory for a set of {} CPUs", size)};
  const std::size_t bytes = CPU_ALLOC_SIZE(size);
  CPU_ZERO_S(bytes, set.get());
  for (const unsigned cpu : cpus) CPU_SET_S(cpu, bytes, set.get());
  const int error = ::pthread_setaffinity_np(thread, bytes, set.get());
  if (error == 0) return {};
  return {error == EPERM ? Code::kPermissionDenied : Code::kInvalidArgument,
          fmt::format("a thread cannot be pinned to CPU {}: {}; see Cpus_allowed_list in /proc/self/status, or set "
                      "placement to off",
                      to_index_list(cpus), std::generic_category().message(error))};
}

ElsewhereMeanwhile::ElsewhereMeanwhile(std::span<const unsigned> cpus) {
  if (cpus.empty()) return;
  std::vector<unsigned> now = affinity_of(::pthread_self());
  if (set_affinity(::pthread_self(), cpus).ok()) before_ = std::move(now);
}

ElsewhereMeanwhile::~ElsewhereMeanwhile() {
  if (!before_.empty()) (void)set_affinity(::pthread_self(), before_);
}

}  // namespace fairlead
