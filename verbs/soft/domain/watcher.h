// The watcher: a thread that advances a domain while nobody polls it.
//
// While an application polls, the watcher looks once a millisecond whether it still does, and leaves the sockets alone,
// so that packets wake nobody. Once it has done so for a while its polls put off the next look, which so comes some
// milliseconds after the last of them. Once it stopped, or waits for completion events, the watcher sleeps on the
// sockets and the timers, but for the first microseconds: what comes in quick succession is to wake nobody, as that
// costs who sends over memory more than all else. Its core it offers to others when it finds nothing, and else now and
// then. Idle, it uses no CPU.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <span>
#include <thread>

#include "base/clock.h"
#include "base/system/patience.h"
#include "base/unique_fd.h"

namespace fairlead::soft {

class Domain;

class Watcher {
 public:
  /// Sets the domain's alarm, which must not be rung any more once the watcher is gone. Calls `on_news`, without the
  /// domain's lock, when `news` (-1: none) is readable.
  Watcher(Domain& domain, int news, std::function<void()> on_news);
  ~Watcher();

  /// Idempotent; the first call starts the thread. Any thread. Throws std::system_error when there is no room for one:
  /// the next call tries again.
  void start();

 private:
  void run() noexcept;
  /// Advances the domain. Whether that did something, or did a moment ago.
  [[nodiscard]] bool finds_something() noexcept;
  void wait(std::span<const int> ports, long long nanoseconds) noexcept;
  /// Until nobody has polled for a while, or there is something else to do.
  void wait_while_polled() noexcept;

  Domain& domain_;
  UniqueFd alarm_;
  Patience patience_;
  Nanos linger_until_ = 0, offer_core_at_ = 0;  // of the thread alone
  bool offers_core_ = false;
  int news_;
  std::function<void()> on_news_;
  std::atomic<bool> stop_{false};
  std::mutex starting_;
  std::thread thread_;  // once it is there, it stays
};

}  // namespace fairlead::soft
