#include "bench/base/cpu_time.h"

#include <sys/resource.h>
#include <time.h>

#include "bench/base/host_load.h"

namespace fairlead::bench {
namespace {

constexpr double kTick = 0.01;  // seconds, as /proc counts

CpuUse process_use() noexcept {
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) != 0) return {};
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return {.user = seconds(usage.ru_utime), .system = seconds(usage.ru_stime), .softirq = 0};
}

}  // namespace

CpuUse cpu_use() {
  CpuUse use = process_use();
  if (const auto ticks = cpu_ticks(SystemFiles())) use.softirq = static_cast<double>(ticks->softirq) * kTick;
  return use;
}

double process_cpu_seconds() noexcept { return process_use().total(); }

double thread_cpu_seconds() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

}  // namespace fairlead::bench
