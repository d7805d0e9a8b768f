// What came of a run, or of many.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim_host.h"

namespace fairlead::simulation {

struct Outcome {
  std::string wrong;  // empty: nothing is
  std::uint64_t transfers = 0, ok = 0, failed = 0, cancelled = 0, refused = 0, notified = 0, messages = 0,
                commands = 0;  // of those two, so many were of that class
  std::uint64_t atomics = 0;   // that ended well
  std::uint64_t bytes = 0;     // of transfers that ended well
  std::uint64_t failovers = 0, replayed = 0, duplicates = 0, staged_bytes = 0, rail_bytes = 0;
  std::uint64_t stale_on_wire = 0;  // operations that landed on an end that a fence had closed
  std::uint64_t sent_again = 0;     // packets that were lost or spoiled on the way
  std::uint64_t sessions = 0, lost = 0, killed = 0;
  std::uint64_t hung_up = 0, resumed = 0;  // control connections that broke; ends that went on over another
  std::uint64_t moved = 0;                 // of those that came instead, so many had to go to another lane
  std::uint64_t slowest_recovery = 0;      // microseconds from a cut to a path that both ends use
  /// The same of each cut that left no path while nothing else was wrong (no engine stood still, no control connection
  /// was broken, no device swallows): of which an end was told, and of which none was.
  std::vector<std::uint64_t> told_recoveries, silent_recoveries;
  Pairs pairs[2]{};  // of active ends, of passive ends

  bool operator==(const Outcome&) const = default;

  /// Sums; the first that is wrong, and the slowest.
  Outcome& operator+=(const Outcome& other) {
    if (wrong.empty()) wrong = other.wrong;
    for (auto count : {&Outcome::transfers,    &Outcome::ok,
                       &Outcome::failed,       &Outcome::cancelled,
                       &Outcome::refused,      &Outcome::notified,
                       &Outcome::messages,     &Outcome::commands,
                       &Outcome::bytes,        &Outcome::failovers,
                       &Outcome::replayed,     &Outcome::duplicates,
                       &Outcome::staged_bytes, &Outcome::stale_on_wire,
                       &Outcome::sent_again,   &Outcome::sessions,
                       &Outcome::lost,         &Outcome::killed,
                       &Outcome::hung_up,      &Outcome::resumed,
                       &Outcome::atomics,      &Outcome::rail_bytes,
                       &Outcome::moved}) {
      this->*count += other.*count;
    }
    slowest_recovery = std::max(slowest_recovery, other.slowest_recovery);
    for (auto all : {&Outcome::told_recoveries, &Outcome::silent_recoveries}) {
      (this->*all).insert((this->*all).end(), (other.*all).begin(), (other.*all).end());
    }
    for (std::size_t end : {0u, 1u}) pairs[end] += other.pairs[end];
    return *this;
  }
};

}  // namespace fairlead::simulation
