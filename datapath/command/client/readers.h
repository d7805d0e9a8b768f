// The threads that wait for a service's words: one of them reads for all, the others sleep until theirs have come or it
// is their turn to read.
//
// Who waits for the end of a command is in haste. Who waits for room is not: it has as much under way as it may. It
// leaves the reading to those in haste, and for a moment behind one that comes again and again, as who waits for each
// of its commands does: a hand-over is the waking of a thread, and on a host with few cores a turn of the scheduler,
// which the next command would wait for.
//
// Conditions only read what is atomic, or under a lock that nobody waits with. Threads: all under the session's lock,
// which a sleeper gives away.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace fairlead::datapath::command {

enum class Haste : bool { kNo, kYes };

class Readers {
 public:
  using Clock = std::chrono::steady_clock;
  using Condition = std::function<bool()>;
  /// Who comes again so soon comes again and again. (A timer that is nearer costs more than it brings: flusher.h.)
  static constexpr std::chrono::microseconds kLinger{1000};

  [[nodiscard]] bool is_reading() const noexcept { return reading_; }
  /// Nobody reads, and nobody but the caller comes again and again to do so.
  [[nodiscard]] bool is_idle(Clock::time_point now) const noexcept {
    const bool another_comes = lingers_ && now < hasty_until_ && hasty_ != std::this_thread::get_id();
    return !reading_ && !another_comes && first(Haste::kYes) == nullptr;
  }
  /// A thread begins to wait.
  void come(Haste haste, Clock::time_point now) noexcept {
    if (haste != Haste::kYes) return;
    lingers_ = now < hasty_until_;
    hasty_ = std::this_thread::get_id();
  }
  /// Whether the caller is to read now, and end() it once it has. Else it sleeps, and asks again.
  [[nodiscard]] bool begin(Haste haste, Clock::time_point now) noexcept {
    if (reading_) return false;
    if (haste == Haste::kYes) {
      hasty_until_ = now + kLinger;
    } else if (Sleeper* const other = first(Haste::kYes); other != nullptr) {
      get_up(*other);
      return false;
    } else if (lingers_ && now < hasty_until_) {
      return false;
    }
    return reading_ = true;
  }
  void end() noexcept { reading_ = false; }
  /// Sleeps until `done`, its turn, or the deadline.
  void sleep(std::unique_lock<std::mutex>& lock, const Condition& done, Haste haste, Clock::time_point deadline) {
    Sleeper self{&done, haste};
    sleepers_.push_back(&self);
    self.up.wait_until(lock, deadline, [&self] { return self.awake; });
    std::erase(sleepers_, &self);
  }
  /// Something was read: wakes those whose condition holds.
  void wake_done() noexcept {
    for (Sleeper* const each : sleepers_) {
      if (!each->awake && (*each->done)()) get_up(*each);
    }
  }
  /// The caller, that was in such haste, waits no more: it is another's turn, of those in haste before others. Behind
  /// one that comes again and again these look for their turn by themselves.
  void call_next(Haste haste) noexcept {
    if (reading_) return;
    Sleeper* next = first(Haste::kYes);
    if (next == nullptr && (haste == Haste::kNo || !lingers_)) next = first(Haste::kNo);
    if (next != nullptr) get_up(*next);
  }
  void wake_all() noexcept {
    for (Sleeper* const each : sleepers_) get_up(*each);
  }

 private:
  struct Sleeper {
    const Condition* done;
    Haste haste;
    bool awake = false;
    std::condition_variable up{};
  };
  [[nodiscard]] Sleeper* first(Haste haste) const noexcept {
    const auto found = std::ranges::find(sleepers_, haste, &Sleeper::haste);
    return found != sleepers_.end() ? *found : nullptr;
  }
  static void get_up(Sleeper& sleeper) noexcept {
    sleeper.awake = true;
    sleeper.up.notify_one();
  }

  std::vector<Sleeper*> sleepers_;
  Clock::time_point hasty_until_{};  // a moment after one in haste read last
  std::thread::id hasty_{};          // who came last in haste
  bool lingers_ = false;             // it had come within that moment
  bool reading_ = false;
};

}  // namespace fairlead::datapath::command
