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
  [[nodiscard]] CpuUse operator*(double part) const noexcept { return {user * part, system * part, softirq * part}; }
};

/// Since the process began, and the host.
[[nodiscard]] CpuUse cpu_use();
[[nodiscard]] double process_cpu_seconds() noexcept;
/// Of the calling thread.
[[nodiscard]] double thread_cpu_seconds() noexcept;

/// Wall time since it was made or restarted: for what may be short and frequent.
class Stopwatch {
 public:
  void restart() noexcept { began_ = std::chrono::steady_clock::now(); }
  [[nodiscard]] double seconds() const noexcept {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  }

 private:
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

/// Processor time as well. To begin it reads a file of the host's, which takes 20 us and more, and for which the wall
/// clock waits.
class CpuStopwatch {
 public:
  void restart() {
    cpu_ = cpu_use();
    wall_.restart();
  }
  [[nodiscard]] double seconds() const noexcept { return wall_.seconds(); }
  [[nodiscard]] double cpu_seconds() const noexcept { return process_cpu_seconds() - cpu_.total(); }
  [[nodiscard]] CpuUse cpu() const {
    const CpuUse now = cpu_use();
    return {now.user - cpu_.user, now.system - cpu_.system, now.softirq - cpu_.softirq};
  }

 private:
  CpuUse cpu_ = cpu_use();
  Stopwatch wall_;  // begins last
};

}  // namespace fairlead::bench
