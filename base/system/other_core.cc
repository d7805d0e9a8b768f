#include "base/system/other_core.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>

#include "base/system/no_cancellation.h"
#include "base/unique_fd.h"

namespace fairlead {
namespace {

/// "0-3,8" with a line feed. parse_index_list() is the same for who may allocate.
bool parse_cpus(const char* at, const char* end, cpu_set_t& cpus) noexcept {
  CPU_ZERO(&cpus);
  while (at != end && *at != '\n') {
    unsigned first = 0;
    auto read = std::from_chars(at, end, first);
    unsigned last = first;
    if (read.ec == std::errc{} && read.ptr != end && *read.ptr == '-') read = std::from_chars(read.ptr + 1, end, last);
    if (read.ec != std::errc{} || last >= CPU_SETSIZE) return false;
    for (unsigned cpu = first; cpu <= last; ++cpu) CPU_SET(cpu, &cpus);
    at = read.ptr;
    if (at != end && *at == ',') ++at;
  }
  return true;
}

/// Those that share the last cache of `cpu`, itself among them; false: the system does not say.
bool sharers_of_cache(const char* root, int cpu, cpu_set_t& sharers) noexcept {
  for (int cache = 4; cache >= 0; --cache) {  // the first-level ones come first
    char path[512], text[512];
    const int length = std::snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%d/cache/index%d/shared_cpu_list",
                                     root, cpu, cache);
    if (length < 0 || static_cast<std::size_t>(length) >= sizeof path) return false;
    const UniqueFd file(::open(path, O_RDONLY | O_CLOEXEC));
    if (!file.valid()) continue;
    const ssize_t size = ::read(file.get(), text, sizeof text);
    return size > 0 && static_cast<std::size_t>(size) < sizeof text && parse_cpus(text, text + size, sharers);
  }
  return false;
}

}  // namespace

bool leave_core(const char* root) noexcept {
  const NoCancellation whole;
  const int own = ::sched_getcpu();
  cpu_set_t allowed, others;
  if (own < 0 || own >= CPU_SETSIZE || ::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
  if (!sharers_of_cache(root, own, others)) return false;
  CPU_AND(&others, &others, &allowed);
  CPU_CLR(static_cast<unsigned>(own), &others);
  // The system moves who may not stay; from there on it may again be anywhere.
  return CPU_COUNT(&others) != 0 && ::sched_setaffinity(0, sizeof others, &others) == 0 &&
         ::sched_setaffinity(0, sizeof allowed, &allowed) == 0;
}

}  // namespace fairlead
