// One measurement of a path: small writes one after the other, then rounds of larger ones, each as large as the answers
// to those before allow.
//
// What is under way is never more than the path has shown to carry in a few milliseconds: a round has four times the
// bytes of the one before if that took no longer than kShort beyond a round trip, and else as many. So a slow path is
// not filled, and a fast one is. Bounded: by kMostBytes, and kMostTime after which nothing more begins. Pure; no time
// but what is given. Threads: the driver.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "datapath/flow/figures.h"
#include "datapath/lane/lane.h"

namespace fairlead::datapath {

class Measurement {
 public:
  static constexpr std::uint64_t kSmall = 8, kFirstRound = 4 * 1024, kMostRound = 512 * 1024;  // bytes
  static constexpr std::uint64_t kMostBytes = 4 << 20;
  static constexpr std::size_t kSmallRounds = 9;  // the first does not count
  static constexpr unsigned kLargeRounds = 3;     // of the largest
  static constexpr std::chrono::milliseconds kShort{1}, kMostTime{100};

  /// `piece`: bytes of one write at most, at least kSmall.
  Measurement(std::uint64_t piece, Clock::time_point now) : piece_(piece), begun_(now) {}

  /// Bytes of the write that is to be posted now. 0: none, before some have ended, or at all.
  [[nodiscard]] std::uint64_t next() const noexcept;
  /// It was posted.
  void given(std::uint64_t bytes, Clock::time_point now) noexcept;
  /// One has completed.
  void ended(Clock::time_point now);
  [[nodiscard]] bool done() const noexcept { return done_; }
  [[nodiscard]] Clock::time_point begun() const noexcept { return begun_; }
  /// Of one that is done.
  [[nodiscard]] Figure figure() const noexcept { return {round_trip_, rate_}; }

 private:
  void small_ended(Clock::duration took, Clock::time_point now);
  void round_ended(Clock::duration took, Clock::time_point now) noexcept;

  const std::uint64_t piece_;
  const Clock::time_point begun_;
  std::vector<Clock::duration> small_;
  bool large_ = false, done_ = false;
  std::uint64_t round_ = kSmall, left_ = kSmall;  // bytes of this round, and of them not posted yet
  std::size_t under_way_ = 0;                     // writes
  std::uint64_t all_ = 0;                         // bytes
  unsigned settled_ = 0;                          // rounds that were not followed by a larger one
  Clock::time_point round_begun_{};
  Clock::duration round_trip_{};
  double rate_ = 0;
};

}  // namespace fairlead::datapath
