// One size of one operation between two ends, prepared once and timed as often as is wanted: what all measurements of
// bandwidth and latency are made of.
// Threads: one. Errors: any operation that failed, data that differs, a path that changed.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "bench/memory/end_memory.h"
#include "bench/net/course.h"
#include "bench/net/link.h"
#include "bench/net/options.h"

namespace fairlead::bench {

/// What to say of a peer whose answer is none of a target's.
[[nodiscard]] Status no_target();

class Load {
 public:
  virtual ~Load() = default;
  Load() = default;
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  /// Has memory at both ends, filled. `link` and `plan` must outlive it. A link has one load at a time: the target
  /// forgets the memory of the one before.
  static Result<std::unique_ptr<Load>> prepare(Link& link, const Plan& plan, std::uint64_t size);

  /// Runs, and keeps no figures, until one of the two is reached.
  virtual Status warm_up(double seconds, std::uint64_t operations) = 0;
  /// Runs for so long, or so many operations if that is not 0. A sample that was stopped says so.
  virtual Result<Sample> timed(double seconds, std::uint64_t operations) = 0;
  /// That what was timed arrived, and that other data does, outside of any clock.
  virtual Status verify() = 0;
};

// The parts of it, one file each.

/// The memory of one size at both ends: equal slots, compared by pattern.
class Buffers {
 public:
  /// Allocates here, where the plan says, and has the target allocate. `echo` (published here) is where the target
  /// writes back to, or empty.
  static Result<Buffers> prepare(Link& link, const Plan& plan, std::uint64_t size, std::uint64_t slots, bool spin,
                                 std::string_view echo);

  [[nodiscard]] const Memory& local(std::uint64_t slot) const noexcept { return local_[slot]; }
  [[nodiscard]] const RemoteMemory& remote(std::uint64_t slot) const noexcept { return remote_[slot]; }
  [[nodiscard]] std::uint64_t slots() const noexcept { return local_.size(); }
  [[nodiscard]] std::uint64_t size() const noexcept { return memory_.size(); }
  /// The operations between both ends' slots, `count` from `first` on, checked once, as a program would that goes round
  /// the same memory. From the last to the first: what lies in the order of memory at both ends would be one request.
  [[nodiscard]] Result<Prepared> prepared(Link& link, Op op, std::uint64_t first, std::uint64_t count) const;
  [[nodiscard]] const EndMemory& memory() const noexcept { return memory_; }
  /// kDataLoss, naming the slot, unless slot i holds pattern (seed, i).
  [[nodiscard]] Status compare(std::uint64_t seed) const;
  [[nodiscard]] Status compare_target(Link& link, std::uint64_t seed, std::string_view what) const;

 private:
  EndMemory memory_;
  std::vector<Memory> local_;         // its slots
  std::vector<RemoteMemory> remote_;  // the target's
};

Result<std::unique_ptr<Load>> make_bandwidth_load(Link& link, const Plan& plan, std::uint64_t size);
Result<std::unique_ptr<Load>> make_latency_load(Link& link, const Plan& plan, std::uint64_t size);

/// Runs `run` between the target's "start" and "stop", for so long, or so many operations if that is not 0, with others
/// if it is one of several; fills the sample's counts, seconds and processor times. Gives the number of messages that
/// the target received.
Result<std::uint64_t> time_it(Link& link, const Plan& plan, double seconds, std::uint64_t operations, Sample& sample,
                              const std::function<Status(Course&)>& run);

}  // namespace fairlead::bench
