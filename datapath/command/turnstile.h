// One at a time at a device that several tenants share: sessions wait here for their tenant's turn.
//
// A turn that takes longer than it may no longer keeps others waiting: what hangs holds its own session, and the others
// run beside it. Its tenant pays for the time when it ends. Threads: any.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>

#include "datapath/command/shares.h"

namespace fairlead::datapath::command {

class Turnstile {
 public:
  using Clock = std::chrono::steady_clock;
  using Member = Shares::Member;

  Turnstile(fairlead::command::Sharing sharing, Clock::duration longest_turn) noexcept
      : longest_turn_(longest_turn), shares_(sharing) {}

  Member join(double share);
  void set_share(Member member, double share);

  /// A turn, from when it was given to when it ends.
  struct Turn {
    Member member = 0;
    std::uint64_t number = 0;  // 0: none was given
    Clock::time_point began;
  };
  /// Waits. No turn: `stopping` came to be true; who sets it calls wake(). `ended`: the caller's last turn, which ends
  /// with this (its number is 0: there was none); it has been waiting already when the next is chosen, so who always
  /// has more to run is never passed over.
  [[nodiscard]] Turn enter(Member member, const std::atomic<bool>& stopping, const Turn& ended);
  void leave(const Turn& turn);
  void wake();

  /// Turns that took longer than they may.
  [[nodiscard]] std::uint64_t overruns() const noexcept { return overruns_.load(std::memory_order_relaxed); }

 private:
  struct Waiting {
    Turn turn;
    std::condition_variable given;
  };
  using Queue = std::list<Waiting*>;
  // All of these under mutex_.
  /// Gives the next turn, if none is under way. Until when nothing changes by itself.
  Clock::time_point give(Clock::time_point now);
  void end(const Turn& turn, Clock::time_point now);
  void wake_all();

  const Clock::duration longest_turn_;
  std::mutex mutex_;  // guards what follows
  Shares shares_;
  std::map<Member, Queue> waiting_;
  std::uint64_t turns_ = 0, under_way_ = 0;  // the number of the one that others wait for; 0: none
  Clock::time_point overruns_at_{};          // when they no longer do
  std::atomic<std::uint64_t> overruns_{0};
};

}  // namespace fairlead::datapath::command
