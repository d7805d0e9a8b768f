// Processor time of this process: user and system, all threads, in seconds (getrusage(2), RUSAGE_SELF); and of its
// host, since what a network costs is not all charged to who uses it.
#pragma once

#include <chrono>

namespace fairlead::bench {

struct CpuUse {
  double user = 0, system = 0;  // of the process
  double softirq = 0;           // of all processors of the host, whoever caused it; in steps of 10 ms
  [[nodiscard]] double total() const noexcept { return user + system; }
  CpuUse& operator+=(const CpuUse& other) noexcept {
    user += other.user, system += other.system, softirq += other.softirq;
    return *this;
  }
};

/// Since the process began, and the host.
[[nodiscard]] CpuUse cpu_use();
[[nodiscard]] double process_cpu_seconds() noexcept;
/// Of the calling thread.
[[nodiscard]] double thread_cpu_seconds() noexcept;

/// Wall and processor time since it was made or restarted.
class Stopwatch {
 public:
  void restart() {
    wall_ = std::chrono::steady_clock::now();
    cpu_ = cpu_use();
  }
  [[nodiscard]] double seconds() const noexcept {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - wall_).count();
  }
  [[nodiscard]] double cpu_seconds() const noexcept { return process_cpu_seconds() - cpu_.total(); }
  [[nodiscard]] CpuUse cpu() const {
    const CpuUse now = cpu_use();
    return {now.user - cpu_.user, now.system - cpu_.system, now.softirq - cpu_.softirq};
  }

 private:
  std::chrono::steady_clock::time_point wall_ = std::chrono::steady_clock::now();
  CpuUse cpu_ = cpu_use();
};

}  // namespace fairlead::bench
