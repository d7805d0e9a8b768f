// One size of one operation between two ends, prepared once and timed as often as is wanted: what all measurements of
// bandwidth and latency are made of.
// Threads: one. Errors: any operation that failed, data that differs, a path that changed.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "bench/memory/end_memory.h"
#include "bench/net/link.h"
#include "bench/net/options.h"
#include "bench/net/pace.h"

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

/// Says when a loop has run long enough, or was stopped.
class Until {
 public:
  Until(const Plan& plan, double seconds, std::uint64_t iterations)
      : plan_(plan),
        iterations_(iterations),
        end_(std::chrono::steady_clock::now() + std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9))) {}
  [[nodiscard]] bool reached(std::uint64_t done, std::chrono::steady_clock::time_point now) const noexcept {
    return plan_.stopped() || (iterations_ != 0 ? done >= iterations_ : now >= end_);
  }
  [[nodiscard]] bool reached_either(std::uint64_t done, std::chrono::steady_clock::time_point now) const noexcept {
    return plan_.stopped() || done >= iterations_ || now >= end_;
  }

 private:
  const Plan& plan_;
  std::uint64_t iterations_;
  std::chrono::steady_clock::time_point end_;
};

Result<std::unique_ptr<Load>> make_bandwidth_load(Link& link, const Plan& plan, std::uint64_t size);
Result<std::unique_ptr<Load>> make_latency_load(Link& link, const Plan& plan, std::uint64_t size);

/// Runs `timed` between the target's "start" and "stop"; fills the sample's seconds and processor times. Gives the
/// number of messages that the target received.
/// If it is one of several, with the others.
Result<std::uint64_t> time_it(Link& link, Sample& sample, const std::function<Status()>& timed,
                              Together* together = nullptr);

/// The same of `run(over)`, which runs until over(operations, now): for so long, or so many operations if that is not
/// 0. Says how far it is, as the plan wants.
template <typename Run>
Result<std::uint64_t> time_until(Link& link, const Plan& plan, double seconds, std::uint64_t operations, Sample& sample,
                                 Run run) {
  const auto timed = [&] {
    const Until enough(plan, seconds, operations);
    Telling telling(plan);
    return run([&](auto done, auto now) {
      telling.look(done, now);
      return enough.reached(done, now);
    });
  };
  return time_it(link, sample, timed, plan.together);
}

}  // namespace fairlead::bench
