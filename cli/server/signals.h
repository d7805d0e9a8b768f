// Signals that end a server: the first lets what is under way finish, for so long; the second ends at once. SIGHUP has
// it read its files again, if it has any.
//
// Threads: one, which polls fd() for poll_ms() and calls came() when there is something.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>

#include "base/unique_fd.h"
#include "cli/base/console.h"
#include "fairlead/status.h"

namespace fairlead::cli {

/// SIGTERM, SIGINT and SIGHUP as a descriptor. Called before there are other threads: they are blocked in all of them.
Result<UniqueFd> catch_signals();

/// Whether one of them that ends a server has come and is not taken yet: for what a server does before it takes any.
[[nodiscard]] bool end_is_pending() noexcept;

class ServerSignals {
 public:
  /// What a server does about them.
  struct Served {
    std::function<void()> drain;   // takes nothing new
    std::function<bool()> busy;    // something is under way
    std::function<void()> reload;  // reads its files again
  };

  /// How long a drain takes, in seconds: not less if nothing is under way, and not more if something is.
  struct Drain {
    double least = 0, most = 0;
  };

  ServerSignals(int fd, Drain seconds, Served served, Console& console)
      : fd_(fd), seconds_(seconds), served_(std::move(served)), console_(console) {}

  [[nodiscard]] int fd() const noexcept { return fd_; }
  [[nodiscard]] int poll_ms() const;
  void came();
  /// Whether it is over now.
  [[nodiscard]] bool now() const;

 private:
  int fd_;
  Drain seconds_;
  Served served_;
  Console& console_;
  std::size_t signals_ = 0;
  std::chrono::steady_clock::time_point not_before_{}, by_{};
};

}  // namespace fairlead::cli
