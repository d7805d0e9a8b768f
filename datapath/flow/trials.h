// Which of a session's candidates for a path may be tried, and when.
//
// Before a path has been in use each is tried once: who connects wants to hear soon that none works. From then on what
// failed may be tried again after a while that doubles each time: a reset connection, or a link that was down for
// seconds, is not the end of a session. One that fails again and again for as long as a peer may be silent, without
// having carried anything between, is given up. Candidates better than the one in use are looked at again for ever,
// after pauses that grow to minutes: that costs nothing but a path set up in vain. No time but what is given. Threads:
// the driver.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "datapath/lane/lane.h"

namespace fairlead::datapath {

class Trials {
 public:
  static constexpr unsigned kMostFailures = 6;  // in a row
  static constexpr std::chrono::milliseconds kFirstPause{20};
  static constexpr unsigned kMostDoublings = 14;    // of the pause before a look: five minutes and a half
  static constexpr std::chrono::seconds kLong{10};  // in use for so long, a path has done its work

  /// What a path was good for before it failed.
  struct Use {
    Clock::duration time{};
    bool carried = false;  // something of its user's arrived
  };

  /// Candidates 0 to `count` - 1, the best first; none has been tried. None is given up that has not failed for
  /// `patience`.
  void begin(std::size_t count, Clock::duration patience = {}) {
    trials_.assign(count, {});
    patience_ = patience;
  }

  /// A path is in use: from now on what fails may be tried again.
  void in_use() noexcept { again_ = true; }
  /// It failed `now`: after it had been of use, or in the attempt.
  void failed(std::size_t candidate, std::string because, Clock::time_point now, Use use);
  void failed(std::size_t candidate, std::string because, Clock::time_point now) {
    failed(candidate, std::move(because), now, {});
  }

  /// It failed while another was in use, which speaks against looking at it again soon, and against nothing else.
  void failed_beside(std::size_t candidate, std::string because, Clock::time_point now);

  /// The best of those that may be tried now and failed least: what never works costs its time to find out.
  [[nodiscard]] std::optional<std::size_t> next(Clock::time_point now) const noexcept;
  /// Whether another than this may be tried now.
  [[nodiscard]] bool has_other(std::size_t candidate, Clock::time_point now) const noexcept;
  /// The best of those that rank above this one, in use, and that may be looked at now.
  [[nodiscard]] std::optional<std::size_t> better(std::size_t candidate, Clock::time_point now) const noexcept;
  /// Whether it may be looked at now.
  [[nodiscard]] bool may_look(std::size_t candidate, Clock::time_point now) const noexcept {
    return trials_[candidate].look_at <= now;
  }
  /// When the next of those that wait may be tried; nothing: all are given up.
  [[nodiscard]] std::optional<Clock::time_point> next_at() const noexcept;
  /// Why it failed last; empty if it has not.
  [[nodiscard]] const std::string& because(std::size_t candidate) const noexcept { return trials_[candidate].because; }

 private:
  struct Trial {
    unsigned failures = 0;  // in a row
    Clock::time_point since{};
    bool exhausted = false;  // so often, and for so long
    Clock::time_point at{};
    unsigned looks = 0;  // in vain, with those failures
    Clock::time_point look_at{};
    std::string because;
  };
  static void put_off(Trial& trial, Clock::time_point now);
  [[nodiscard]] bool is_given_up(const Trial& trial) const noexcept {
    return again_ ? trial.exhausted : trial.failures != 0;
  }
  [[nodiscard]] bool is_open(const Trial& trial, Clock::time_point now) const noexcept {
    return !is_given_up(trial) && trial.at <= now;
  }

  std::vector<Trial> trials_;
  Clock::duration patience_{};
  bool again_ = false;
};

}  // namespace fairlead::datapath
