#include "base/system/other_core.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "base/index_list.h"
#include "base/system/affinity.h"

namespace fairlead {
namespace {

/// Those that share the last cache of `cpu`, itself among them; empty where the system does not say.
std::vector<unsigned> sharers_of_cache(const SystemFiles& files, unsigned cpu) {
  const std::string caches = fmt::format("/sys/devices/system/cpu/cpu{}/cache", cpu);
  std::vector<unsigned> widest;
  for (const std::string& cache : files.list(caches)) {
    const std::optional<std::string> text = files.line(fmt::format("{}/{}/shared_cpu_list", caches, cache));
    if (!text) continue;
    Result<std::vector<unsigned>> sharers = parse_index_list(*text);
    if (sharers && sharers->size() > widest.size()) widest = std::move(*sharers);
  }
  return widest;
}

}  // namespace

bool leave_core(const SystemFiles& files) noexcept try {
  const int own = ::sched_getcpu();
  if (own < 0) return false;
  const std::vector<unsigned> allowed = affinity_of(::pthread_self());
  std::vector<unsigned> others = sharers_of_cache(files, static_cast<unsigned>(own));
  std::erase_if(others, [&](unsigned cpu) {
    return cpu == static_cast<unsigned>(own) || !std::ranges::binary_search(allowed, cpu);
  });
  // The system moves who may not stay; from there on it may again be anywhere.
  return !others.empty() && set_affinity(::pthread_self(), others).ok() && set_affinity(::pthread_self(), allowed).ok();
} catch (const std::bad_alloc&) {
  return false;
}

}  // namespace fairlead
