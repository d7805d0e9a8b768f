// A lane: one progress domain of the engine. Whoever polls drives.
//
// All state of the lane's sessions is touched only by its driver: the thread that holds the driver token. An
// application thread that waits takes the token and drives; the lane's own thread drives while nobody waits, and
// stands back for a while after an application thread drove (else every packet would wake it for nothing): some tenths
// of a millisecond, or a few milliseconds if it did so for long without a pause. Who waits while another drives is
// woken for what it waits for alone, and takes over when the driver leaves. Other threads hand work over through
// submit(): the submitter runs it at once if it gets the token.
//
// Threads: submit, kick, wait_until from any thread. progress() of the Domain runs on the driver only.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <thread>

#include "base/private_fd.h"
#include "base/system/patience.h"
#include "datapath/lane/waiters.h"
#include "fairlead/config.h"

namespace fairlead::datapath {

using Clock = std::chrono::steady_clock;

/// Work for the driver; intrusive, so that handing over a transfer allocates nothing.
class Submission {
 public:
  virtual void run() noexcept = 0;

 protected:
  ~Submission() = default;

 private:
  friend class Lane;
  Submission* next_ = nullptr;
};

/// What a lane drives.
class Domain {
 public:
  /// Advances everything once; returns whether anything happened.
  virtual bool progress() noexcept = 0;
  /// Prepares to sleep. false: something is there already.
  virtual bool arm() noexcept = 0;
  /// Nobody sleeps, and rounds have followed each other for long: until arm() nothing needs to wake anybody.
  virtual void disarm() noexcept {}
  /// Who has driven leaves, and the next round may be a while off: what others wait for is not put off until then.
  virtual void settle() noexcept {}
  /// The longest sleep.
  [[nodiscard]] virtual std::chrono::milliseconds sleep_limit() noexcept = 0;

 protected:
  ~Domain() = default;
};

class Lane {
 public:
  Lane(Domain& domain, Progress mode, std::chrono::microseconds spin, std::size_t number = 0);
  ~Lane();  // stop() must have been called

  /// False: there were no descriptors for it, or no room to watch them, and nothing may be called.
  [[nodiscard]] bool valid() const noexcept { return epoll_ && kick_fd_; }
  /// Of its engine's, from 0.
  [[nodiscard]] std::size_t number() const noexcept { return number_; }
  /// Starts the lane's thread unless the mode is kApplication.
  Status start();
  /// The thread, between start() and stop(), if there is one.
  [[nodiscard]] std::optional<std::thread::native_handle_type> thread() {
    return thread_.joinable() ? std::optional(thread_.native_handle()) : std::nullopt;
  }
  /// Joins the thread. The caller may go on driving.
  void stop();

  /// Runs `work` on the driver: now on this thread if nobody drives, else soon.
  void submit(Submission& work) noexcept;
  void submit(std::function<void()> work);
  /// Runs `work` on the driver and waits for its end. Not from the driver itself.
  void call(const std::function<void()>& work);

  /// Advances once if nobody else drives.
  bool poll_once() noexcept;
  /// Drives, or waits for who drives, until `done` or the deadline; returns done(). The driver may call it, too, on its
  /// thread, until this returns.
  bool wait_until(const std::function<bool()>& done, Clock::time_point deadline);
  /// The same for so long, counted from a moment later: what comes at once takes no look at the clock.
  bool wait_for(const std::function<bool()>& done, std::chrono::nanoseconds timeout);
  /// How often a driver went to sleep: a lane that nothing happens to hardly does.
  [[nodiscard]] std::uint64_t sleeps() const noexcept { return sleeps_.load(std::memory_order_relaxed); }
  /// How often a thread was woken that had slept while another drove.
  [[nodiscard]] std::uint64_t wakes() const noexcept { return waiters_.wakes(); }
  /// Wakes a driver that sleeps.
  void kick() noexcept;

  /// For who drives several lanes by poll_once(), and sleeps for all of them: prepares this one, shortens `limit` to
  /// the longest that it may be left alone, and says which descriptor ends the sleep. -1: poll again first, or another
  /// thread drives it. Else end_sleep() is to be called.
  [[nodiscard]] int begin_sleep(std::chrono::milliseconds& limit) noexcept;
  void end_sleep() noexcept;

  /// Descriptors that end a sleep (level-triggered, readable). False: there is no room for it, and errno says why.
  [[nodiscard]] bool watch(int fd) noexcept;
  /// The same in two steps: the room is taken, where it can be refused, and from the second on sleeps end.
  [[nodiscard]] bool reserve_watch(int fd) noexcept;
  void watch_reserved(int fd) noexcept;
  void unwatch(int fd) noexcept;

 private:
  /// In kThread mode only the lane's thread drives, as long as there is one.
  [[nodiscard]] bool may_drive() const noexcept { return mode_ != Progress::kThread || stopping_.load(); }
  bool try_acquire() noexcept { return !driven_.load() && !driven_.exchange(true); }
  void release() noexcept;
  /// The same for who has driven.
  void leave() noexcept;
  bool run_submissions() noexcept;
  /// The lane's thread only looks for a change, so of two at a time one may be lost.
  void count_drive() noexcept {
    const std::uint64_t drives = application_drives_.load(std::memory_order_relaxed) + 1;
    application_drives_.store(drives, std::memory_order_relaxed);
    if (drives % kDrivesToPutOff == 0 && patience_.slept_on() && !stopping_.load()) patience_.put_off();
  }
  bool advance() noexcept {
    if (armed_ && ++rounds_ >= kRoundsToDisarm && sleepers_.load() == 0) disarm();
    const bool did = static_cast<int>(run_submissions()) | static_cast<int>(domain_.progress());
    moved_ |= did;
    return did;
  }
  /// By the driver. True: this thread is a sleeper now, and sleep_in_epoll(), or end_sleep(), is to follow.
  bool arm() noexcept;
  bool arm_domain() noexcept;
  void disarm() noexcept;
  bool drive(const std::function<bool()>& done, Clock::time_point now, Clock::time_point deadline) noexcept;
  bool drive_for_a_moment(const std::function<bool()>& done) noexcept;
  bool spin_until(const std::function<bool()>& done, Clock::time_point deadline) noexcept;
  bool await_change(const std::function<bool()>& done, Clock::time_point deadline);
  void sleep_in_epoll(std::chrono::milliseconds limit) noexcept;
  void thread_main() noexcept;
  void stand_back() noexcept;

  static constexpr std::uint64_t kDrivesToPutOff = 1024;
  static constexpr std::uint32_t kRoundsToDisarm = 1024;  // some hundred microseconds

  Domain& domain_;
  const Progress mode_;
  const std::chrono::microseconds spin_;
  const std::size_t number_;
  PrivateFd epoll_, kick_fd_;
  Patience patience_;                            // of the lane's thread
  std::atomic<Submission*> submitted_{nullptr};  // newest first
  std::atomic<bool> driven_{false};              // the driver token
  std::atomic<int> sleepers_{0};                 // threads in epoll_wait, or about to be: counted while they drive
  std::atomic<std::uint64_t> sleeps_{0};
  std::atomic<std::uint64_t> application_drives_{0};
  std::atomic<bool> spinning_{false};  // somebody spins while another drives; one does at a time
  std::atomic<bool> stopping_{false};
  bool armed_ = true;         // the driver's, as the next
  bool moved_ = false;        // something, since arm()
  std::uint32_t rounds_ = 0;  // the same
  Waiters waiters_;
  std::thread thread_;
};

/// now + timeout without overflow.
[[nodiscard]] Clock::time_point deadline_after(std::chrono::nanoseconds timeout) noexcept;

}  // namespace fairlead::datapath
