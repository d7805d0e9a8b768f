// Processor time of this process: user and system, all threads, in seconds (getrusage(2), RUSAGE_SELF).
#pragma once

#include <chrono>

namespace fairlead::bench {

[[nodiscard]] double process_cpu_seconds() noexcept;

/// Wall and processor time since it was made or restarted.
class Stopwatch {
 public:
  void restart() noexcept {
    wall_ = std::chrono::steady_clock::now();
    cpu_ = process_cpu_seconds();
  }
  [[nodiscard]] double seconds() const noexcept {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - wall_).count();
  }
  [[nodiscard]] double cpu_seconds() const noexcept { return process_cpu_seconds() - cpu_; }

 private:
  std::chrono::steady_clock::time_point wall_ = std::chrono::steady_clock::now();
  double cpu_ = process_cpu_seconds();
};

}  // namespace fairlead::bench
