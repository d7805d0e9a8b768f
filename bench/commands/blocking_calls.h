// What a remote call costs that is one blocking request over a TCP connection: 64 bytes there, 16 bytes back.
//
// The other end is a process of its own on this host. Threads: one.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>

#include "base/unique_fd.h"
#include "bench/net/histogram.h"
#include "fairlead/status.h"

namespace fairlead::bench {

class BlockingCalls {
 public:
  /// Forks, so before any thread exists.
  static Result<BlockingCalls> start();
  BlockingCalls(BlockingCalls&& other) noexcept;
  BlockingCalls& operator=(BlockingCalls&&) = delete;
  ~BlockingCalls();

  /// Calls for so long, or until `stop` is not 0; the time of each, in ns. `spins`: both ends look for bytes all the
  /// time instead of sleeping. Errors: the connection's.
  Result<Histogram> measure(std::chrono::nanoseconds duration, const std::atomic<int>& stop, bool spins = false);

 private:
  BlockingCalls(UniqueFd connection, pid_t child) noexcept : connection_(std::move(connection)), child_(child) {}
  /// One, after which the other end waits for the next one so.
  [[nodiscard]] bool call(bool next_spins);
  UniqueFd connection_;
  pid_t child_;  // -1: none
};

}  // namespace fairlead::bench
