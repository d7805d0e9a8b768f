// What a process counts by reason, of all its engines together: for /metrics. What is counted without a reason stands
// in EngineStats, of each engine. Each is counted once, where the reason is decided.
//
// Threads: any, at any time.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "fairlead/status.h"

namespace fairlead {

inline constexpr std::size_t kCodes = static_cast<std::size_t>(Code::kInternal) + 1;

class CodeCounts {
 public:
  void add(Code code) noexcept {
    counts_[static_cast<std::size_t>(code) % kCodes].fetch_add(1, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t get(Code code) const noexcept {
    return counts_[static_cast<std::size_t>(code) % kCodes].load(std::memory_order_relaxed);
  }

 private:
  std::array<std::atomic<std::uint64_t>, kCodes> counts_{};
};

struct Tally {
  CodeCounts path_deaths;         // paths that died under their sessions
  CodeCounts recoveries;          // paths that took the place of one that died so, over the same transport,
  CodeCounts failovers;           // or over another
  CodeCounts handshakes_refused;  // connections that did not become sessions, by what they were told
  std::atomic<std::uint64_t> credit_waits{0};  // times that messages began to wait until the peer takes some
};

/// The process's own.
inline Tally& tally() noexcept {
  static Tally counts;
  return counts;
}

}  // namespace fairlead
